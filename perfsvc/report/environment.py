"""Words and tables for the full environments of runs."""

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from perfsvc import units
from perfsvc.model import Difference, FullEnvironment
from perfsvc.report.rows import EnvironmentDifferences
from perfsvc.report.tables.layout import properties

MOST_DIFFERENCES = 20
"""How many differences are shown beside other results."""


def heading(changes: EnvironmentDifferences) -> str:
    """Return the heading of a list of differences: ``2 differences of the environment since run 7``."""
    count = units.count(len(changes.differences), "difference")
    return f"{count} of the environment since run {changes.before}"


def difference_lines(changes: EnvironmentDifferences, most: int | None = MOST_DIFFERENCES) -> Iterator[str]:
    """Yield a line for each difference (``gpu.ecc on → off``), then how many more there are."""
    for difference in changes.differences[:most]:
        yield f"{difference.name} {value_change(difference)}"
    if most is not None and (omitted := len(changes.differences) - most) > 0:
        yield f"and {omitted} more: perfsvc runs environment {changes.before} {changes.after}"


def value_change(difference: Difference) -> str:
    """Return both values of a difference, and the GPUs that it concerns if they are known: ``on → off (GPU-1)``."""
    before, after = _value(difference.name, difference.before), _value(difference.name, difference.after)
    devices = f" ({', '.join(difference.devices)})" if difference.devices else ""
    return f"{before} → {after}{devices}"


def _value(name: str, value: str | None) -> str:
    if value is None:
        return "unset" if name.startswith("variable.") else "unknown"
    return value or "empty"


def differences_table(changes: EnvironmentDifferences) -> RenderableType:
    """Return every difference of two runs."""
    if not changes.differences:
        return Text(f"runs {changes.before} and {changes.after} have the same environment")
    rows = ((difference.name, value_change(difference)) for difference in changes.differences)
    return Group(Text(f"{heading(changes)}, in run {changes.after}", "bold"), properties(rows))


def environment_table(run: int, environment: FullEnvironment) -> RenderableType:
    """Return every part of the full environment of a run: first what its devices share, then each device."""
    parts: list[RenderableType] = [Text(f"run {run}", "bold"), properties(environment.common.items())]
    for uuid, of_device in environment.devices.items():
        parts += [Text(), Text(uuid, "bold"), properties(of_device.items())]
    return Group(*parts)
