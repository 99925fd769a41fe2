"""The HTML report: one file with its style inside, made from ``dashboards/report.html.j2``."""

from dataclasses import dataclass
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from perfsvc.model import Status
from perfsvc.report import units
from perfsvc.report.layout import known, spread
from perfsvc.resources import folder


@dataclass(frozen=True, slots=True)
class Line:
    """A case as the page shows it; ``share`` is its median over the slowest median at its point, from 0 to 1."""

    variant: str
    point: str
    status: str
    reason: str
    median: str
    spread: str
    bandwidth: str
    error: str
    share: float


@dataclass(frozen=True, slots=True)
class Part:
    """The results of one run on one device, by benchmark."""

    run: int
    label: str
    commit: str
    started: str
    device: str
    device_model: str
    device_kind: str
    driver: str
    toolkit: str
    benchmarks: dict[str, list[Line]]

    @property
    def failures(self) -> int:
        """How many of its cases failed or gave a wrong result."""
        bad = {Status.FAILED.value, Status.WRONG.value}
        return sum(line.status in bad for lines in self.benchmarks.values() for line in lines)


def page(summary: pd.DataFrame) -> str:
    """The report as one self-contained HTML file, the latest run first.

    Args:
        summary: what ``perfsvc.report.frames.summary`` returns.
    """
    environment = Environment(loader=FileSystemLoader(folder("dashboards")), autoescape=True, undefined=StrictUndefined)
    groups = summary.sort_values("run", ascending=False, kind="stable").groupby(["run", "device"], sort=False)
    return environment.get_template("report.html.j2").render(parts=[_part(rows) for _, rows in groups])


def _part(rows: pd.DataFrame) -> Part:
    slowest = rows.groupby(["benchmark", "point"])["median_s"].transform("max")
    records = rows.assign(share=rows["median_s"] / slowest).to_dict("records")
    first = records[0]
    benchmarks: dict[str, list[Line]] = {}
    for record in records:
        benchmarks.setdefault(record["benchmark"], []).append(_line(record))
    return Part(
        run=first["run"],
        label=first["label"],
        commit=first["commit"][:9],
        started=f"{first['started_at']:%Y-%m-%d %H:%M} UTC",
        device=first["device"],
        device_model=first["device_model"],
        device_kind=first["device_kind"],
        driver=first["driver"],
        toolkit=first["toolkit"],
        benchmarks=benchmarks,
    )


def _line(record: dict[Any, Any]) -> Line:
    known_values = {name: None if pd.isna(value) else value for name, value in record.items()}
    median_s, low_s, high_s = (known_values[name] for name in ("median_s", "low_s", "high_s"))
    return Line(
        variant=record["variant"],
        point=record["point"],
        status=record["status"],
        reason=record["reason"],
        median=known(median_s, units.seconds),
        spread=spread(median_s, low_s, high_s),
        bandwidth=known(known_values["bandwidth_bytes_per_s"], units.rate),
        error=known(known_values["max_error"], units.error),
        share=known_values["share"] or 0.0,
    )
