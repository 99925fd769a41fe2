"""The HTML report: one file with its style inside, made from ``dashboards/report.html.j2``."""

from dataclasses import dataclass, replace
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from perfsvc import units
from perfsvc.installation import data_folder
from perfsvc.model import AUXILIARY, CacheState, Status, Verdict
from perfsvc.report.export.frames import details
from perfsvc.report.facts import facts, metric
from perfsvc.report.tables.layout import cache_words, known, spread

MOVED = (Verdict.REGRESSION.value, Verdict.IMPROVEMENT.value)


@dataclass(frozen=True, slots=True)
class Line:
    """A case as the page shows it.

    ``verdict`` is empty where nothing was judged, ``change`` where nothing moved. ``share`` is its median over the
    slowest median at its point, from 0 to 1; ``anchored`` whether it has an reference variant, and ``relative_to`` the share of that;
    ``metrics`` are those that it returned itself, ``facts`` what else is known.
    """

    variant: str
    point: str
    status: str
    reason: str
    median: str
    spread: str
    bandwidth: str
    peak: str
    has_relative: bool
    relative_to: str
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
    peak: str
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
        summary: what ``perfsvc.report.export.frames.summary`` returns.
    """
    environment = Environment(
        loader=FileSystemLoader(data_folder("dashboards")), autoescape=True, undefined=StrictUndefined
    )
    groups = summary.sort_values("run", ascending=False, kind="stable").groupby(["run", "device"], sort=False)
    return environment.get_template("report.html.j2").render(parts=[_part(rows) for _, rows in groups])


def _part(rows: pd.DataFrame) -> Part:
    slowest = rows.groupby(["benchmark", "point", "cache"])["median_s"].transform("max")
    records = rows.assign(share=rows["median_s"] / slowest).to_dict("records")
    first = records[0]
    caches = cache_words((one["device"], one["case"], CacheState(one["cache"])) for one in records)
    benchmarks: dict[str, list[Line]] = {}
    for record in records:
        benchmarks.setdefault(record["benchmark"], []).append(
            _line(record, caches[record["device"], record["case"], record["cache"]])
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
        peak=_peak(first),
        benchmarks=benchmarks,
    )


def _peak(record: dict[Any, Any]) -> str:
    copied, read = record["copy_bytes_per_s"], record["read_bytes_per_s"]
    return "" if pd.isna(copied) else f"copies {units.rate(copied)}, reads {units.rate(read)}"


def _line(record: dict[Any, Any], cache: str) -> Line:
    of = details(record)
    own = {name: value for name, value in of.metrics.items() if name not in AUXILIARY}
    explaining = {name: value for name, value in of.metrics.items() if name in AUXILIARY}
    beside = replace(of, metrics=explaining, bandwidth_bytes_per_s=None, peak_share=None, relative_speed=None)
    known_values = {name: None if pd.isna(value) else value for name, value in record.items()}
    median_s, low_s, high_s = (known_values[name] for name in ("median_s", "low_s", "high_s"))
    return Line(
        variant=f"{record['variant']} {cache}".rstrip(),
        point=record["point"],
        status=record["status"],
        reason=record["reason"],
        median=known(median_s, units.seconds),
        spread=spread(median_s, low_s, high_s),
        bandwidth=known(known_values["bandwidth_bytes_per_s"], units.rate),
        peak=known(of.peak_share, units.share) if of.peak_share else "",
        has_relative=bool(record.get("relative_to")),
        relative_to=units.share(of.relative_speed) if of.relative_speed else "",
        error=known(known_values["max_error"], units.error),
        share=known_values["share"] or 0.0,
        verdict=known_values.get("verdict") or "",
        change=units.percent(known_values["ratio"] or 1.0) if known_values.get("verdict") in MOVED else "",
        metrics=[(name, metric(name, value)) for name, value in sorted(own.items())],
        facts=facts(beside),
    )
