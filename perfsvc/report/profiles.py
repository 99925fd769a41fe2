"""What a profiler counted, and why cases take longer: for people."""

from collections.abc import Callable, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from perfsvc.model import CaseExplanation, ProfileResult
from perfsvc.report import units
from perfsvc.report.layout import DASH, grid

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
        parts.append(Text.assemble(("why", "bold"), " ", (name, "bold"), f": {one.told}"))
        parts += [Text(f"  {line}", "dim") for line in one.evidence]
    return Group(*parts)
