"""The table of a case's history."""

from collections.abc import Sequence
from itertools import pairwise
from math import isfinite

from rich.console import Group, RenderableType
from rich.text import Text

from perfsvc import units
from perfsvc.model import TIME, CacheState
from perfsvc.report import wording
from perfsvc.report.rows import HistoryRow
from perfsvc.report.tables.layout import EXCLUDED, grid, mark, properties
from perfsvc.report.wording import DASH, or_dash

BLOCKS = "▁▂▃▄▅▆▇█"
GAP = " "


def history_table(case: str, rows: Sequence[HistoryRow]) -> RenderableType:
    """Return a case's history, oldest first, by device and cache state, each with a sparkline of its medians."""
    caches = wording.cache_words((row.device, case, row.cache) for row in rows)
    histories: dict[tuple[str, CacheState], list[HistoryRow]] = {}
    for row in rows:
        histories.setdefault((row.device, row.cache), []).append(row)
    parts: list[RenderableType] = []
    for (device, cache), history in histories.items():
        name = f"{case} {caches[device, case, cache]}".rstrip()
        metrics = dict.fromkeys(metric for row in history for metric in row.metrics)
        is_timed = not metrics or any(row.median_s is not None for row in history)
        for metric in [*([TIME] if is_timed else []), *metrics]:
            parts += _history(name, metric, history)
        parts += _below(history)
    return Group(*parts)


def _history(name: str, metric: str, rows: Sequence[HistoryRow]) -> list[RenderableType]:
    """Return the heading, the sparkline and the table of one metric."""
    newest = rows[-1]
    shown = name if metric == TIME else f"{name} {metric}"
    levels = [row.median_s if metric == TIME else row.metrics.get(metric) for row in rows]
    heading = Text.assemble((shown, "bold"), f" on {newest.device_model}", (f"  {newest.device}", "dim"))
    judged = [level for row, level in zip(rows, levels, strict=True) if not row.excluded]
    line = Text(sparkline(judged), "cyan", overflow="fold")
    changes = iter(_changes(judged))
    table = grid()
    table.add_column("")
    table.add_column("run", justify="right")
    table.add_column("started (UTC)", no_wrap=True)
    table.add_column("commit", no_wrap=True)
    table.add_column("label", overflow="fold")
    for column in ("median" if metric == TIME else metric, "spread", "change"):
        table.add_column(column, justify="right", no_wrap=True)
    for row, level in zip(rows, levels, strict=True):
        spread = wording.spread(level, row.low_s, row.high_s) if metric == TIME else ""
        table.add_row(
            mark(row.status),
            str(row.run),
            wording.moment(row.started),
            Text(wording.commit_text(row.commit, dirty=row.dirty)),
            Text(row.label or DASH),
            Text(row.status.value if level is None else wording.level(level, metric)),
            Text(spread, "dim"),
            Text("excluded" if row.excluded else next(changes)),
            style=EXCLUDED if row.excluded else "",
        )
    return [heading, line, table, Text()]


def _below(rows: Sequence[HistoryRow]) -> list[RenderableType]:
    """Return what stands below the tables of a case: why runs are not ok or excluded, details, and the explanation."""
    newest = rows[-1]
    reasons = [Text(f"run {row.run} {row.status.value}: {row.reason}") for row in rows if row.reason]
    reasons += [Text(f"run {row.run} is excluded from judging: {row.excluded}") for row in rows if row.excluded]
    why = [Text.assemble((f"why in run {row.run}", "bold"), f": {row.why}") for row in rows if row.why][-1:]
    return [*reasons, *_details(newest), *why, *([Text()] if why else [])]


def _changes(levels: Sequence[float | None]) -> list[str]:
    """Return the change of each level from the one before it."""
    ratios = [after / before if before and after else None for before, after in pairwise(levels)]
    return [DASH, *(or_dash(ratio, units.percent) for ratio in ratios)]


def _details(row: HistoryRow) -> list[RenderableType]:
    """Return the details of a run's row below its number, one value a line; nothing if there are none."""
    if row.details is None or not (values := wording.details(row.details)):
        return []
    return [Text(f"run {row.run}", "bold"), properties(values), Text()]


def sparkline(values: Sequence[float | None]) -> str:
    """Return a block for each value, from the lowest to the highest; a space for a value that is None or not finite.

    Equal values all get the shortest block.
    """
    known = [value for value in values if value is not None and isfinite(value)]
    if not known:
        return GAP * len(values)
    low, span = min(known), max(known) - min(known)
    return "".join(_block(value, low, span) for value in values)


def _block(value: float | None, low: float, span: float) -> str:
    if value is None or not isfinite(value):
        return GAP
    return BLOCKS[round((value - low) / span * (len(BLOCKS) - 1))] if span else BLOCKS[0]
