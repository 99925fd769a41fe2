"""Tables of profiles and explanations."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from perfsvc import units
from perfsvc.installation import data_folder
from perfsvc.model import CaseExplanation, Evidence, Explanation, Profile, ProfileResult, ProfilerRule, Reason
from perfsvc.report.export.objects import plain
from perfsvc.report.tables.layout import DASH, grid

WRITTEN: Mapping[str, Callable[[float], str]] = {
    "_bytes_per_s": units.rate,
    "_flops_per_s": units.flop_rate,
    "_s": units.seconds,
    "_hz": units.frequency,
    "_bytes": lambda value: units.size(round(value)),
    **dict.fromkeys(("_throughput", "_rate", "_occupancy"), lambda value: f"{100 * value:.1f} %"),
}
"""How a metric is written, by how its name ends."""
GROUPED = 1000
"""From here on a number's digits are grouped."""


def profile_table(profiled: ProfileResult) -> RenderableType:
    """The metrics of a profile, and what the profiler's own rules found."""
    profile = profiled.profile
    if profile is None:
        return Text(f"{profiled.case.id}: no profile: {profiled.reason}")
    heading = Text.assemble((profiled.case.id, "bold"), f" of run {profiled.run}: kernel {profile.kernel}")
    heading.append(f"\non {profiled.device_model}  {profiled.device}", "dim")
    heading.append(
        f"\n{profiled.profiler} {profile.ncu_version}, set {profiled.sections}, {units.seconds(profiled.wall_s)}", "dim"
    )
    table = grid()
    table.add_column("metric", overflow="fold")
    table.add_column("value", justify="right", no_wrap=True)
    for name, value in profile.metrics.items():
        table.add_row(name, metric_text(name, value))
    rules = [
        Text.assemble(
            (rule.name, "bold"), f" ({units.share(rule.speedup)})" if rule.speedup else "", f": {rule.message}"
        )
        for rule in profile.rules
    ]
    return Group(heading, Text(), table, *([Text(), *rules] if rules else []))


def metric_text(name: str, value: float | None) -> str:
    """A metric's value in the unit that its name ends with; a dash where it was not counted."""
    if value is None:
        return DASH
    write = next((write for ending, write in WRITTEN.items() if name.endswith(ending)), None)
    if write:
        return write(value)
    return f"{value:,.0f}".replace(",", " ") if abs(value) >= GROUPED else f"{value:.4g}"


def explained_lines(explained: Sequence[CaseExplanation]) -> RenderableType:
    """A sentence for each case that takes longer, with what it rests on below."""
    several = len({one.device for one in explained}) > 1
    parts: list[Text] = []
    for one in explained:
        name = f"{one.case.id} on {one.device_model} ({one.device})" if several else one.case.id
        parts.append(Text.assemble(("why", "bold"), " ", (name, "bold"), f": {one.text}"))
        parts += [Text(f"  {line}", "dim") for line in one.evidence]
    return Group(*parts)


LEAST_FACTOR = 10.0
"""A change that is told as a factor, and no longer in per cent."""


def explanation_table(before: Profile, after: Profile, found: Explanation) -> RenderableType:
    """The answer, what each reason can account for, the evidence of those that stand for themselves, and the rules.

    Args:
        before: the baseline's profile.
        after: the candidate's.
        found: what ``perfsvc.profile.explain`` made of them.
    """
    parts: list[RenderableType] = [_heading(before, after), Text(), Text(found.sentence, "bold")]
    if found.reasons:
        parts += [Text(), _reasons(found.reasons), Text(), _evidence(evidence_of(found))]
    for rule in rules_of(found):
        parts += [Text(), _rule(rule)]
    return Group(*parts)


def explanation_json(before: Profile, after: Profile, found: Explanation) -> dict[str, Any]:
    """All of it for ``--format json``, with every metric of both profiles; null where one was not counted."""
    return {
        "sentence": found.sentence,
        "factor": found.factor,
        "reasons": [plain(reason) for reason in found.reasons],
        "before": plain(before),
        "after": plain(after),
    }


def explanation_page(before: Profile, after: Profile, found: Explanation, drawn: str) -> str:
    """All of it as one self-contained HTML file.

    Args:
        before: the baseline's profile.
        after: the candidate's.
        found: what ``perfsvc.profile.explain`` made of them.
        drawn: the roofline as an SVG element.
    """
    environment = Environment(
        loader=FileSystemLoader(data_folder("dashboards")), autoescape=True, undefined=StrictUndefined
    )
    return environment.get_template("explanation.html.j2").render(
        heading=_heading(before, after).plain.splitlines(),
        sentence=found.sentence,
        reasons=[(units.share(each.share), *_told(each), each.follows) for each in found.reasons],
        evidence=[_written(each) for each in evidence_of(found)],
        rules=[_rule(rule).plain for rule in rules_of(found)],
        drawn=drawn,
    )


def evidence_of(found: Explanation) -> list[Evidence]:
    """The metrics of the reasons that stand for themselves, each once."""
    every = [each for reason in found.reasons if reason.follows is None for each in reason.evidence]
    return list({each.metric: each for each in every}.values())


def rules_of(found: Explanation) -> list[ProfilerRule]:
    """The rules that say the same as a reason that stands for itself, each once."""
    return list(dict.fromkeys(rule for each in found.reasons if each.follows is None for rule in each.rules))


def _heading(before: Profile, after: Profile) -> Text:
    kernels = before.kernel if before.kernel == after.kernel else f"{before.kernel} → {after.kernel}"
    lines = [kernels]
    for which, profile in {"before": before, "after": after}.items():
        place = " ".join(filter(None, [profile.device, f"({profile.chip})" if profile.chip else ""]))
        by = f"Nsight Compute {profile.ncu_version}" if profile.ncu_version else ""
        time = metric_text("duration_s", profile.metrics.get("duration_s"))
        lines.append("  ".join(filter(None, [f"{which:<6}", time, place, by])))
    return Text.assemble((lines[0], "bold"), *(Text(f"\n{line}", "dim") for line in lines[1:]))


def _reasons(reasons: Sequence[Reason]) -> Table:
    table = grid()
    table.add_column("share", justify="right", no_wrap=True)
    table.add_column("reason", no_wrap=True)
    table.add_column("how they differ", overflow="fold")
    for reason in reasons:
        style = "" if reason.follows is None else "dim"
        table.add_row(units.share(reason.share), *_told(reason), style=style)
    return table


def _told(reason: Reason) -> tuple[str, str]:
    follows = f" (follows from {reason.follows.value})" if reason.follows else ""
    return reason.kind.value, reason.detail + follows


def _evidence(evidence: Sequence[Evidence]) -> Table:
    table = grid()
    table.add_column("metric", overflow="fold")
    for column in ("before", "after", "change"):
        table.add_column(column, justify="right", no_wrap=True)
    for each in evidence:
        table.add_row(*_written(each))
    return table


def _written(each: Evidence) -> tuple[str, str, str, str]:
    return each.metric, metric_text(each.metric, each.before), metric_text(each.metric, each.after), _change(each)


def _change(each: Evidence) -> str:
    """``+97.3 %``, ``× 503``, ``÷ 503``; a dash where one of both is zero or unknown."""
    if not each.before or not each.after:
        return "0.0 %" if each.before == each.after == 0 else DASH
    ratio = each.after / each.before
    if ratio >= LEAST_FACTOR:
        return f"× {ratio:.3g}"
    return units.percent(ratio) if ratio > 1 / LEAST_FACTOR else f"÷ {1 / ratio:.3g}"


def _rule(rule: ProfilerRule) -> Text:
    estimate = f" (up to {units.share(rule.speedup)})" if rule.speedup else ""
    return Text.assemble((f"{rule.name}{estimate}", "bold"), f": {rule.message}")
