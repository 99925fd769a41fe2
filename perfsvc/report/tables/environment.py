"""Tables of the full environments of runs."""

from rich.console import Group, RenderableType
from rich.text import Text

from perfsvc.model import FullEnvironment
from perfsvc.report.environment import heading, value_change
from perfsvc.report.rows import EnvironmentDifferences
from perfsvc.report.tables.layout import properties


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
