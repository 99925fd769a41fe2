"""From the store's frame back to the tables that ``perfsvc run`` showed."""

from collections.abc import Iterator
from typing import Any

import pandas as pd
from rich.console import Group, RenderableType
from rich.text import Text

from perfsvc.model import Status
from perfsvc.report.results import WORST_FIRST
from perfsvc.report.rows import MetricRow, ResultRow
from perfsvc.report.tables import run_table

METRIC = "metric_"


def stored_table(table: pd.DataFrame) -> RenderableType:
    """The runs of a frame one below the other, each as it was shown when it ended, without its verdicts.

    Args:
        table: what ``frames.frame`` returns: a row a measurement.
    """
    if table.empty:
        return Text("nothing measured")
    parts: list[RenderableType] = []
    for run, of_run in table.groupby("run", sort=False):
        parts += [_heading(of_run.iloc[0]), run_table(int(str(run)), list(_rows(of_run))), Text()]
    return Group(*parts[:-1])


def _heading(first: "pd.Series[Any]") -> Text:
    facts = [f"{first['started_at']:%Y-%m-%d %H:%M} UTC", first["label"], first["commit"][:9], first["host"]]
    return Text.assemble((f"run {first['run']}", "bold"), ("  " + "  ".join(filter(None, facts)), "dim"))


def _rows(of_run: pd.DataFrame) -> Iterator[ResultRow]:
    """One row a case and device, over its replicas; only those that are ok give times."""
    for _, replicas in of_run.groupby(["device", "case", "mode"], sort=False):
        good = replicas[replicas["status"] == Status.OK.value]
        worst = next(status for status in WORST_FIRST if status.value in set(replicas["status"]))
        blamed = replicas[replicas["status"] == worst.value].iloc[0]
        low, high = _ends(good["median_s"])
        yield ResultRow(
            case=blamed["case"],
            device=blamed["device"],
            device_model=blamed["device_model"],
            device_kind=blamed["device_kind"],
            status=worst,
            reason=blamed["reason"],
            median_s=_known(good["median_s"].median()),
            low_s=low,
            high_s=high,
            bandwidth_bytes_per_s=_known(good["bandwidth_bytes_per_s"].median()),
            flops_per_s=_known(good["flops_per_s"].median()),
            max_error=_known(replicas["max_error"].max()),
            mean_error=_known(replicas["mean_error"].max()),
            metrics=tuple(_metrics(good)),
        )


def _metrics(good: pd.DataFrame) -> Iterator[MetricRow]:
    for name in sorted(str(column) for column in good if str(column).startswith(METRIC)):
        value = _known(good[name].median())
        if value is not None:
            yield MetricRow(name.removeprefix(METRIC), value, *_ends(good[name]))


def _ends(values: "pd.Series[Any]") -> tuple[float | None, float | None]:
    """The lowest and the highest, where there are two that tell a spread."""
    return (_known(values.min()), _known(values.max())) if values.count() > 1 else (None, None)


def _known(value: float) -> float | None:
    return None if pd.isna(value) else float(value)
