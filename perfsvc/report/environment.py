"""Words for the full environments of runs."""

from collections.abc import Iterator

from perfsvc import units
from perfsvc.model import Difference
from perfsvc.report.rows import EnvironmentDifferences

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
