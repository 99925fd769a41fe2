"""The HTML report of runs: one file with its style inside, made from ``dashboards/report.html.j2``."""

from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from perfsvc import units
from perfsvc.model import AUXILIARY, CacheState, Status
from perfsvc.report import wording
from perfsvc.report.export.frames import details
from perfsvc.report.pages.render import template
from perfsvc.report.wording import CHANGED, or_dash


@dataclass(frozen=True, slots=True)
class CaseLine:
    """A case as the page shows it.

    Attributes:
        bar: its median over the slowest median at its point, from 0 to 1.
        relative_to: its reference variant; empty if there is none.
        relative_speed: the speed relative to the reference variant, as text.
        verdict: empty if the case was not judged.
        change: empty if the case did not change.
        metrics: the metrics that the case returned itself.
        details: the name and the value of each other detail of the run.
    """

    variant: str
    point: str
    status: str
    reason: str
    median: str
    spread: str
    bandwidth: str
    peak_share: str
    relative_to: str
    relative_speed: str
    error: str
    bar: float
    verdict: str
    change: str
    metrics: list[tuple[str, str]]
    details: list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class DeviceResults:
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
    benchmarks: dict[str, list[CaseLine]]

    @property
    def judged(self) -> bool:
        """Whether any case has a verdict."""
        return any(line.verdict for lines in self.benchmarks.values() for line in lines)

    @property
    def failures(self) -> int:
        """How many cases failed or gave a wrong result."""
        bad = {Status.FAILED.value, Status.WRONG.value}
        return sum(line.status in bad for lines in self.benchmarks.values() for line in lines)


def page(summary: pd.DataFrame) -> str:
    """Return the report as one self-contained HTML file, the latest run first.

    Args:
        summary: what ``frames.summary`` returns.
    """
    groups = summary.sort_values("run", ascending=False, kind="stable").groupby(["run", "device"], sort=False)
    rendered: str = template("report.html.j2").render(parts=[_device_results(rows) for _, rows in groups])
    return rendered


def _device_results(rows: pd.DataFrame) -> DeviceResults:
    slowest = rows.groupby(["benchmark", "point", "cache"])["median_s"].transform("max")
    records = rows.assign(bar=rows["median_s"] / slowest).to_dict("records")
    first = records[0]
    keys = [(record["device"], record["case"], CacheState(record["cache"])) for record in records]
    caches = wording.cache_words(keys)
    benchmarks: dict[str, list[CaseLine]] = {}
    for record, key in zip(records, keys, strict=True):
        benchmarks.setdefault(record["benchmark"], []).append(_line(record, caches[key]))
    copied, read = first["copy_bytes_per_s"], first["read_bytes_per_s"]
    return DeviceResults(
        run=first["run"],
        label=first["label"],
        commit=first["commit"][:9],
        started=f"{first['started_at']:%Y-%m-%d %H:%M} UTC",
        device=first["device"],
        device_model=first["device_model"],
        device_kind=first["device_kind"],
        driver=first["driver"],
        toolkit=first["toolkit"],
        peak="" if pd.isna(copied) else f"copies {units.rate(copied)}, reads {units.rate(read)}",
        benchmarks=benchmarks,
    )


def _line(record: dict[Any, Any], cache: str) -> CaseLine:
    of_case = details(record)
    own = {name: value for name, value in of_case.metrics.items() if name not in AUXILIARY}
    auxiliary = {name: value for name, value in of_case.metrics.items() if name in AUXILIARY}
    without_columns = replace(
        of_case, metrics=auxiliary, bandwidth_bytes_per_s=None, peak_share=None, relative_speed=None
    )
    known = {name: None if pd.isna(value) else value for name, value in record.items()}
    median_s, low_s, high_s = (known[name] for name in ("median_s", "low_s", "high_s"))
    verdict = known.get("verdict") or ""
    return CaseLine(
        variant=f"{record['variant']} {cache}".rstrip(),
        point=record["point"],
        status=record["status"],
        reason=record["reason"],
        median=or_dash(median_s, units.seconds),
        spread=wording.spread(median_s, low_s, high_s),
        bandwidth=or_dash(known["bandwidth_bytes_per_s"], units.rate),
        peak_share=units.share(of_case.peak_share) if of_case.peak_share else "",
        relative_to=of_case.relative_to,
        relative_speed=wording.speed(of_case.relative_speed) if of_case.relative_speed else "",
        error=or_dash(known["max_error"], units.error),
        bar=known["bar"] or 0.0,
        verdict=verdict,
        change=units.percent(known["ratio"] or 1.0) if verdict in CHANGED else "",
        metrics=[(name, wording.metric_value(name, value)) for name, value in sorted(own.items())],
        details=wording.details(without_columns),
    )
