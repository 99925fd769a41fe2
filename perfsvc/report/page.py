"""The HTML report: one file with its style inside, made from ``dashboards/report.html.j2``."""

from dataclasses import dataclass, replace
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from perfsvc.model import BESIDE, Mode, Status, Verdict
from perfsvc.report import units
from perfsvc.report.facts import facts, metric
from perfsvc.report.frames import details
from perfsvc.report.layout import known, mode_words, spread
from perfsvc.resources import folder

MOVED = (Verdict.REGRESSION.value, Verdict.IMPROVEMENT.value)


@dataclass(frozen=True, slots=True)
class Line:
    """A case as the page shows it.

    ``verdict`` is empty where nothing was judged, ``change`` where nothing moved. ``share`` is its median over the
    slowest median at its point, from 0 to 1; ``anchored`` whether it has an anchor, and ``anchor`` the share of that;
    ``metrics`` are those that it returned itself, ``facts`` what else is known.
    """

    variant: str
    point: str
    status: str
    reason: str
    median: str
    spread: str
    bandwidth: str
    roof: str
    anchored: bool
    anchor: str
    error: str
    share: float
    verdict: str
    change: str
    metrics: list[tuple[str, str]]
    facts: list[tuple[str, str]]


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
    roof: str
    benchmarks: dict[str, list[Line]]

    @property
    def judged(self) -> bool:
        """Whether any of its cases has a verdict."""
        return any(line.verdict for lines in self.benchmarks.values() for line in lines)

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
    slowest = rows.groupby(["benchmark", "point", "mode"])["median_s"].transform("max")
    records = rows.assign(share=rows["median_s"] / slowest).to_dict("records")
    first = records[0]
    modes = mode_words((one["device"], one["case"], Mode(one["mode"])) for one in records)
    benchmarks: dict[str, list[Line]] = {}
    for record in records:
        benchmarks.setdefault(record["benchmark"], []).append(
            _line(record, modes[record["device"], record["case"], record["mode"]])
        )
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
        roof=_roof(first),
        benchmarks=benchmarks,
    )


def _roof(record: dict[Any, Any]) -> str:
    copied, read = record["copy_bytes_per_s"], record["read_bytes_per_s"]
    return "" if pd.isna(copied) else f"copies {units.rate(copied)}, reads {units.rate(read)}"


def _line(record: dict[Any, Any], mode: str) -> Line:
    of = details(record)
    own = {name: value for name, value in of.metrics.items() if name not in BESIDE}
    explaining = {name: value for name, value in of.metrics.items() if name in BESIDE}
    beside = replace(of, metrics=explaining, bandwidth_bytes_per_s=None, roof_share=None, anchor_share=None)
    known_values = {name: None if pd.isna(value) else value for name, value in record.items()}
    median_s, low_s, high_s = (known_values[name] for name in ("median_s", "low_s", "high_s"))
    return Line(
        variant=f"{record['variant']} {mode}".rstrip(),
        point=record["point"],
        status=record["status"],
        reason=record["reason"],
        median=known(median_s, units.seconds),
        spread=spread(median_s, low_s, high_s),
        bandwidth=known(known_values["bandwidth_bytes_per_s"], units.rate),
        roof=known(of.roof_share, units.share) if of.roof_share else "",
        anchored=bool(record.get("anchor")),
        anchor=units.share(of.anchor_share) if of.anchor_share else "",
        error=known(known_values["max_error"], units.error),
        share=known_values["share"] or 0.0,
        verdict=known_values.get("verdict") or "",
        change=units.percent(known_values["ratio"] or 1.0) if known_values.get("verdict") in MOVED else "",
        metrics=[(name, metric(name, value)) for name, value in sorted(own.items())],
        facts=facts(beside),
    )
