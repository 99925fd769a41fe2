"""Tables of profiles, and of explanations: the sentence, the reasons, and the metrics behind them."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from perfsvc import units
from perfsvc.model import (
    CaseExplanation,
    Evidence,
    Explanation,
    Profile,
    ProfiledKernel,
    ProfileResult,
    ProfilerRule,
    Reason,
)
from perfsvc.report import wording
from perfsvc.report.explanations import place, reason_lines
from perfsvc.report.tables.layout import grid
from perfsvc.report.wording import DASH, GROUPED, or_dash
from perfsvc.text import cut

SHARES = ("_throughput", "_rate", "_occupancy")
"""The ends of the names of metrics that are shares of one."""

LEAST_FACTOR = 10.0
"""A ratio from here on is written as a factor instead of per cent."""


def profile_table(result: ProfileResult) -> RenderableType:
    """Return the metrics of a profile, and the advice of the profiler's own rules."""
    profile = result.profile
    if profile is None:
        return Text(f"{result.case.id}: no profile: {cut(result.reason)}")
    heading = Text.assemble((result.case.id, "bold"), f" of run {result.run}: kernel {profile.kernel}")
    heading.append(f"\non {result.device_model}  {result.device}", "dim")
    heading.append(
        f"\n{result.profiler} {profile.ncu_version}, set {result.sections}, {units.seconds(result.wall_s)}", "dim"
    )
    table = grid()
    table.add_column("metric", overflow="fold")
    table.add_column("value", justify="right", no_wrap=True)
    for name, value in profile.metrics.items():
        table.add_row(name, profiled_value(name, value))
    rules = [rule_line(rule) for rule in profile.rules]
    kernels = [Text(), _kernels(profile.kernels), Text()] if profile.kernels else [Text()]
    return Group(heading, *kernels, table, *([Text(), *rules] if rules else []))


def _kernels(kernels: Sequence[ProfiledKernel]) -> Table:
    """Return a table of the kernels that were profiled together, with the sum of their times."""
    table = grid()
    table.add_column("", justify="right")
    table.add_column("kernel", overflow="fold")
    table.add_column("time", justify="right", no_wrap=True)
    for number, kernel in enumerate(kernels, 1):
        table.add_row(str(number), kernel.name, or_dash(kernel.duration_s, units.seconds))
    counted = [kernel.duration_s for kernel in kernels if kernel.duration_s is not None]
    table.add_row("", "sum", units.seconds(sum(counted)) if counted else DASH, style="bold")
    return table


def explanation_lines(explanations: Sequence[CaseExplanation]) -> RenderableType:
    """Return a sentence for each slower case, with its evidence below; GPUs that share an explanation share a line."""
    several = len({explanation.device for explanation in explanations}) > 1
    shared: dict[tuple[object, ...], list[CaseExplanation]] = {}
    for explanation in explanations:
        of_pair = (explanation.case, explanation.baseline_run, explanation.candidate_run, explanation.device_model)
        shared.setdefault((*of_pair, explanation.profiles, explanation.reason), []).append(explanation)
    lines: list[Text] = []
    for first, *others in shared.values():
        devices = f"{first.device_model} ({first.device})"
        if others:
            uuids = ", ".join(explanation.device for explanation in (first, *others))
            devices = f"{len(others) + 1} GPUs of the model {first.device_model} ({uuids})"
        device = f" on {devices}" if several else ""
        lines.append(Text.assemble(("why", "bold"), " ", (f"{first.case.id}{device}", "bold"), f": {first.text}"))
        lines += [Text(f"  {line}", "dim") for line in reason_lines(first.reasons)]
    return Group(*lines)


def explanation_table(before: Profile, after: Profile, explanation: Explanation) -> RenderableType:
    """Return the sentence of an explanation, its reasons with their metrics, and the profiler's rules that agree.

    Args:
        before: the baseline's profile.
        after: the candidate's profile.
        explanation: why the candidate is slower.
    """
    heading, *facts = heading_lines(before, after)
    parts: list[RenderableType] = [
        Text.assemble((heading, "bold"), *(Text(f"\n{line}", "dim") for line in facts)),
        Text(),
        Text(explanation.sentence, "bold"),
    ]
    if explanation.reasons:
        parts += [Text(), _reasons(explanation.reasons), Text(), _evidence(evidence_of(explanation))]
    if lines := hot_lines_of(explanation):
        parts += [Text(), _hot_lines(lines)]
    for rule in rules_of(explanation):
        parts += [Text(), rule_line(rule)]
    return Group(*parts)


def heading_lines(before: Profile, after: Profile) -> list[str]:
    """Return the kernel's name, then the time, device and profiler of each launch."""
    lines = [before.kernel if before.kernel == after.kernel else f"{before.kernel} → {after.kernel}"]
    for side, profile in {"before": before, "after": after}.items():
        device = " ".join(filter(None, [profile.device, f"({profile.chip})" if profile.chip else ""]))
        profiler = f"Nsight Compute {profile.ncu_version}" if profile.ncu_version else ""
        time = profiled_value("duration_s", profile.metrics.get("duration_s"))
        lines.append("  ".join(filter(None, [f"{side:<6}", time, device, profiler])))
    return lines


def evidence_of(explanation: Explanation) -> list[Evidence]:
    """Return the metrics behind the independent reasons, each once; a reason that follows from another adds none."""
    independent = (reason for reason in explanation.reasons if reason.follows is None)
    return list({evidence.metric: evidence for reason in independent for evidence in reason.evidence}.values())


def hot_lines_of(explanation: Explanation) -> list[tuple[str, str, str, str]]:
    """Return the side, the share, what was counted, and the place of each line that carries an independent reason."""
    return [
        (side, units.share(line.share), reason.counted, place(line))
        for reason in explanation.reasons
        if reason.follows is None
        for side, lines in (("before", reason.before), ("after", reason.after))
        for line in lines
    ]


def rules_of(explanation: Explanation) -> list[ProfilerRule]:
    """Return the profiler's rules that agree with an independent reason, each once."""
    independent = (reason for reason in explanation.reasons if reason.follows is None)
    return list(dict.fromkeys(rule for reason in independent for rule in reason.rules))


def reason_cells(reason: Reason) -> tuple[str, str]:
    """Return the name of a reason, and how the two launches differ in it."""
    follows = f" (follows from {reason.follows.value})" if reason.follows else ""
    return reason.kind.value, reason.detail + follows


def evidence_cells(evidence: Evidence) -> tuple[str, str, str, str]:
    """Return a metric's name, its value before, its value after, and the change."""
    before, after = (profiled_value(evidence.metric, value) for value in (evidence.before, evidence.after))
    return evidence.metric, before, after, change_text(evidence.before, evidence.after)


def profiled_value(name: str, value: float | None) -> str:
    """Return a profiled metric in the unit that its name ends with, or a dash if it was not counted."""
    if value is not None and name.endswith(SHARES):
        return f"{100 * value:.1f} %"
    return or_dash(value, lambda number: wording.metric_value(name, number))


def rule_line(rule: ProfilerRule) -> Text:
    """Return a rule of the profiler with the speed-up that it estimates."""
    estimate = f" (up to {units.share(rule.speedup)})" if rule.speedup else ""
    return Text.assemble((f"{rule.name}{estimate}", "bold"), f": {rule.message}")


def _reasons(reasons: Sequence[Reason]) -> Table:
    """Return a table with a row for each reason; a reason that follows from another one is dim."""
    table = grid()
    table.add_column("share", justify="right", no_wrap=True)
    table.add_column("reason", no_wrap=True)
    table.add_column("how they differ", overflow="fold")
    for reason in reasons:
        style = "" if reason.follows is None else "dim"
        table.add_row(units.share(reason.share), *reason_cells(reason), style=style)
    return table


def _evidence(every_evidence: Sequence[Evidence]) -> Table:
    """Return a table of metrics with their values before and after."""
    table = grid()
    table.add_column("metric", overflow="fold")
    for column in ("before", "after", "change"):
        table.add_column(column, justify="right", no_wrap=True)
    for evidence in every_evidence:
        table.add_row(*evidence_cells(evidence))
    return table


def _hot_lines(lines: Sequence[tuple[str, str, str, str]]) -> Table:
    """Return a table of the lines that carry the reasons."""
    table = grid()
    table.add_column("side", no_wrap=True)
    table.add_column("share", justify="right", no_wrap=True)
    table.add_column("of the", overflow="fold")
    table.add_column("where", overflow="fold")
    for cells in lines:
        table.add_row(*cells)
    return table


def change_text(before: float | None, after: float | None) -> str:
    """Return the change of a metric: ``+97.3 %``, or ``× 503`` or ``÷ 503`` from a factor of ten on.

    The text is ``0.0 %`` if both values are zero, and a dash if only one value is zero or a value is unknown.
    """
    if not before or not after:
        return "0.0 %" if before == after == 0 else DASH
    ratio = after / before
    if ratio >= LEAST_FACTOR:
        return f"× {three_digits(ratio)}"
    return units.percent(ratio) if ratio > 1 / LEAST_FACTOR else f"÷ {three_digits(1 / ratio)}"


def three_digits(number: float) -> str:
    """Return a number with three digits: ``53.9``, ``6 210``."""
    return f"{number:.3g}" if number < GROUPED else f"{float(f'{number:.3g}'):,.0f}".replace(",", " ")
