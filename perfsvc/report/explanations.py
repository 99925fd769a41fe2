"""Why one launch takes longer than another: the sentence, the reasons, and the metrics that say so."""

from collections.abc import Sequence
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from perfsvc.model import Evidence, Explanation, Profile, ProfilerRule, Reason
from perfsvc.report import units
from perfsvc.report.layout import DASH, grid
from perfsvc.report.plain import plain
from perfsvc.report.profiles import metric_text
from perfsvc.resources import folder

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
    environment = Environment(loader=FileSystemLoader(folder("dashboards")), autoescape=True, undefined=StrictUndefined)
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
