"""The table of a case's history, and that of what changed in an environment."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isfinite

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.text import Text

from perfsvc import units
from perfsvc.model import TIME, CacheState, FullEnvironment, HistoryRow
from perfsvc.report import wording
from perfsvc.report.rows import EnvironmentDifferences, heading, value_change
from perfsvc.report.tables.layout import EXCLUDED, grid, mark, properties
from perfsvc.report.wording import DASH, or_dash
from perfsvc.text import cut


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


BLOCKS = "▁▂▃▄▅▆▇█"
GAP = " "


def history_table(case: str, rows: Sequence[HistoryRow], oldest: int = 0) -> RenderableType:
    """Return a table for each device, cache state and metric of a case, oldest run first, each with a sparkline.

    Args:
        case: the id of the case.
        rows: its results, oldest run first.
        oldest: the first run to show; older rows only tell how the first row changed.
    """
    caches = wording.cache_words((row.device, case, row.cache) for row in rows if row.run >= oldest)
    histories: dict[tuple[str, CacheState], list[HistoryRow]] = {}
    for row in rows:
        histories.setdefault((row.device, row.cache), []).append(row)
    parts: list[RenderableType] = []
    for (device, cache), history in histories.items():
        if not (shown := [row for row in history if row.run >= oldest]):
            continue
        name = f"{case} {caches[device, case, cache]}".rstrip()
        metrics = dict.fromkeys(metric for row in shown for metric in row.metrics)
        is_timed = not metrics or any(row.median_s is not None for row in shown)
        for metric in [*([TIME] if is_timed else []), *metrics]:
            parts += _history(name, metric, history, oldest)
        parts += _notes(shown)
    return Group(*parts)


def _history(name: str, metric: str, rows: Sequence[HistoryRow], oldest: int) -> list[RenderableType]:
    """Return the heading, the sparkline and the table of one metric.

    Args:
        name: the case, with its cache state if it has several.
        metric: the metric.
        rows: the case's runs on one device in one cache state.
        oldest: the first run to show.
    """
    newest = rows[-1]
    shown = name if metric == TIME else f"{name} {metric}"
    levels = [row.median_s if metric == TIME else row.metrics.get(metric) for row in rows]
    heading = Text.assemble((shown, "bold"), f" on {newest.device_model}", (f"  {newest.device}", "dim"))
    judged = [(row.run, level) for row, level in zip(rows, levels, strict=True) if not row.excluded]
    chart = _Chart([level for run, level in judged if run >= oldest])
    changes = iter(_changes([level for _, level in judged]))
    table = grid()
    table.add_column("")
    table.add_column("run", justify="right")
    table.add_column("started (UTC)", no_wrap=True)
    table.add_column("commit", no_wrap=True)
    table.add_column("label", overflow="fold")
    for column in ("median" if metric == TIME else metric, "spread", "change"):
        table.add_column(column, justify="right", no_wrap=True)
    for row, level in zip(rows, levels, strict=True):
        change = "excluded" if row.excluded else next(changes)
        if row.run < oldest:
            continue
        spread = wording.spread(level, row.low_s, row.high_s) if metric == TIME else ""
        table.add_row(
            mark(row.status),
            str(row.run),
            wording.moment(row.started),
            Text(wording.commit_text(row.commit, dirty=row.dirty)),
            Text(row.label or DASH),
            Text(row.status.value if level is None else wording.level(level, metric)),
            Text(spread, "dim"),
            Text(change),
            style=EXCLUDED if row.excluded else "",
        )
    return [heading, chart, table, Text()]


@dataclass(frozen=True, slots=True)
class _Chart:
    """A sparkline on one line. If it has no room for all values, it shows the newest, and a line below says so."""

    values: Sequence[float | None]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the line, and the note if values are left out."""
        shown = self.values[-options.max_width :]
        yield Text(sparkline(shown), "cyan")
        if len(shown) < len(self.values):
            yield Text(f"chart: the newest {len(shown)} of {len(self.values)} runs", "dim")


def _notes(rows: Sequence[HistoryRow]) -> list[RenderableType]:
    """Return the notes below a case's tables.

    They say why the case is not ok in a run, which runs are excluded, what the details of the newest run are, and what
    the newest explanation is.
    """
    newest = rows[-1]
    reasons = [Text(f"run {row.run} {row.status.value}: {cut(row.reason)}") for row in rows if row.reason]
    reasons += [Text(f"run {row.run} is excluded from judging: {row.excluded}") for row in rows if row.excluded]
    why = [Text.assemble((f"why in run {row.run}", "bold"), f": {row.why}") for row in rows if row.why][-1:]
    return [*reasons, *_details(newest), *why, *([Text()] if why else [])]


def _changes(levels: Sequence[float | None]) -> list[str]:
    """Return the change of each level from the level before it, in per cent; a dash where one of them is unknown."""
    ratios = [after / before if before and after else None for before, after in pairwise(levels)]
    return [DASH, *(or_dash(ratio, units.percent) for ratio in ratios)]


def _details(row: HistoryRow) -> list[RenderableType]:
    """Return the number of a run, and below it a line for each detail of the case; an empty list without details."""
    if row.details is None or not (values := wording.details(row.details)):
        return []
    return [Text(f"run {row.run}", "bold"), properties(values), Text()]


def sparkline(values: Sequence[float | None]) -> str:
    """Return a line of blocks (``▁▄█``), one for each value: the lowest value gets ``▁``, the highest ``█``.

    A value that is None or not finite gets a space. If all values are equal, all get ``▁``.
    """
    known = [value for value in values if value is not None and isfinite(value)]
    if not known:
        return GAP * len(values)
    low, span = min(known), max(known) - min(known)
    return "".join(_block(value, low, span) for value in values)


def _block(value: float | None, low: float, span: float) -> str:
    """Return the block of a value in the range from ``low`` to ``low + span``."""
    if value is None or not isfinite(value):
        return GAP
    return BLOCKS[round((value - low) / span * (len(BLOCKS) - 1))] if span else BLOCKS[0]
