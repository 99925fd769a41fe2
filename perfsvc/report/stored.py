"""From the store's frame back to the tables that ``perfsvc run`` showed."""

from typing import Any

import pandas as pd
from rich.console import Group, RenderableType
from rich.text import Text

from perfsvc.model import Case, Status
from perfsvc.report.frames import METRIC, parse_point, summary
from perfsvc.report.rows import MetricRow, ResultRow
from perfsvc.report.tables import run_table


def stored_table(table: pd.DataFrame) -> RenderableType:
    """The runs of a frame one below the other, each as it was shown when it ended, without its verdicts.

    Args:
        table: what ``frames.frame`` returns: a row a measurement.
    """
    if table.empty:
        return Text("nothing measured")
    parts: list[RenderableType] = []
    for run, of_run in table.groupby("run", sort=False):
        rows = [_row(record) for record in summary(of_run).to_dict("records")]
        parts += [_heading(of_run.iloc[0]), run_table(int(str(run)), rows), Text()]
    return Group(*parts[:-1])


def _heading(first: "pd.Series[Any]") -> Text:
    facts = [f"{first['started_at']:%Y-%m-%d %H:%M} UTC", first["label"], first["commit"][:9], first["host"]]
    return Text.assemble((f"run {first['run']}", "bold"), ("  " + "  ".join(filter(None, facts)), "dim"))


def _row(record: dict[Any, Any]) -> ResultRow:
    known: dict[str, Any] = {str(name): None if pd.isna(value) else value for name, value in record.items()}
    spread = known["samples"] > 1
    return ResultRow(
        case=Case(
            known["benchmark"], known["variant"], tuple(parse_point(known["point"]).items()), int(known["version"])
        ),
        device=known["device"],
        device_model=known["device_model"],
        device_kind=known["device_kind"],
        status=Status(known["status"]),
        reason=known["reason"],
        replicas=int(known["replicas"]),
        median_s=known["median_s"],
        low_s=known["low_s"] if spread else None,
        high_s=known["high_s"] if spread else None,
        bandwidth_bytes_per_s=known["bandwidth_bytes_per_s"],
        flops_per_s=known["flops_per_s"],
        max_error=known["max_error"],
        mean_error=known["mean_error"],
        metrics=tuple(
            MetricRow(name.removeprefix(METRIC), value)
            for name, value in sorted(known.items())
            if name.startswith(METRIC) and value is not None
        ),
    )
