"""Data frames of everything but measurements: runs, samples, verdicts, findings and the history of a case."""

from collections.abc import Iterable, Sequence
from dataclasses import fields
from enum import Enum
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from perfsvc.model import CacheState, Finding, HistoryRow, Judgement, MovedSeries, RunRow, Status
from perfsvc.report.export import schema
from perfsvc.report.export.frames import with_axes, with_metrics
from perfsvc.report.rows import SEPARATOR


def runs_frame(runs: Sequence[RunRow]) -> pd.DataFrame:
    """Return runs as a frame with a row for each run (``schema.RUNS``)."""
    return schema.frame_of(schema.RUNS, [_run(run) for run in runs])


def _run(run: RunRow) -> dict[str, Any]:
    return _values(run.provenance) | {
        "run": run.id,
        "state": run.state.value,
        "started_at": run.provenance.started,
        "finished_at": run.finished,
        "cases": run.cases,
        "measurements": sum(run.counts.values()),
        **{status.value: run.counts.get(status, 0) for status in Status},
        "devices": SEPARATOR.join(run.devices),
        "excluded": run.why_excluded,
    }


def _values(row: Any) -> dict[str, Any]:
    """Return the values of a dataclass by the names of its fields."""
    values = ((field.name, getattr(row, field.name)) for field in fields(row))
    return {name: value.value if isinstance(value, Enum) else value for name, value in values}


class SamplesFrame:
    """Collects the samples of measurements, and returns them as a frame (``schema.SAMPLES``).

    Args:
        cases: the ids of all cases that may come; the categories of the column ``case``.
        devices: the UUIDs of all devices that may come, likewise.
    """

    def __init__(self, cases: Iterable[str], devices: Iterable[str]) -> None:
        self._categories = {
            "case": sorted(cases),
            "device": sorted(devices),
            "cache": [str(state) for state in CacheState],
        }
        self._codes = {
            name: {value: code for code, value in enumerate(values)} for name, values in self._categories.items()
        }
        self._rows: list[tuple[int, int, int, int, int]] = []
        self._times_s: list[NDArray[np.float32]] = []

    def add(self, run: int, replica: int, times_s: NDArray[np.float32], **keys: str) -> None:
        """Add the samples of a measurement; ``keys`` are its ``case``, ``device`` and ``cache``."""
        case, device, cache = (self._codes[name][keys[name]] for name in self._categories)
        self._rows.append((run, case, device, cache, replica))
        self._times_s.append(times_s)

    def __len__(self) -> int:
        return sum(map(len, self._times_s))

    def frame(self) -> pd.DataFrame:
        """Return a row for each sample that was added."""
        lengths = [len(times_s) for times_s in self._times_s]
        repeated = np.repeat(np.array(self._rows, np.int64).reshape(-1, 5), lengths, axis=0)
        values: dict[str, Any] = dict(zip(("run", "case", "device", "cache", "replica"), repeated.T, strict=True))
        for name, categories in self._categories.items():
            values[name] = pd.Categorical.from_codes(values[name], categories=pd.Index(categories, dtype=schema.TEXT))
        values["sample"] = np.concatenate([np.zeros(0, np.int64), *map(np.arange, lengths)])
        values["time_s"] = np.concatenate([np.zeros(0), *self._times_s])
        return schema.in_order(pd.DataFrame(values), schema.SAMPLES)


def verdicts_frame(judgements: Sequence[Judgement]) -> pd.DataFrame:
    """Return verdicts as a frame with a row for each verdict (``schema.VERDICTS``), and a column for each axis."""
    table = schema.frame_of(schema.VERDICTS, [_verdict(judgement) for judgement in judgements])
    return with_axes(table, [dict(judgement.series.case.point) for judgement in judgements])[0]


def _verdict(judgement: Judgement) -> dict[str, Any]:
    return _of_series(judgement) | {
        "run": judgement.candidate_run,
        "verdict_reason": judgement.reason,
        "baseline_runs": None if judgement.baseline_run is None else judgement.baseline_runs,
        "noise_between_nights": judgement.between_nights,
    }


def _of_series(row: Judgement | MovedSeries) -> dict[str, Any]:
    """Return the values of a row that compares two levels of a series."""
    series, case = row.series, row.series.case
    return _values(row) | {
        "case": case.id,
        "benchmark": case.benchmark,
        "variant": case.variant,
        "point": case.point_text,
        "device": series.device,
        "device_model": series.device_model,
        "metric": series.metric,
        "cache": series.cache.value,
        "ratio_low": row.low,
        "ratio_high": row.high,
        "baseline_value": row.baseline_s,
        "candidate_value": row.candidate_s,
    }


def findings_frame(findings: Sequence[Finding]) -> pd.DataFrame:
    """Return findings as a frame with a row for each finding (``schema.FINDINGS``)."""
    return schema.frame_of(schema.FINDINGS, [_finding(finding) for finding in findings])


def _finding(finding: Finding) -> dict[str, Any]:
    worst = finding.worst
    return _values(finding) | {
        "finding": finding.id,
        "direction": finding.direction and finding.direction.value,
        "series": len({moved.series for moved in finding.moved}),
        "worst_case": worst and worst.series.case.id,
        "worst_device": worst and worst.series.device,
        "worst_ratio": worst and worst.ratio,
        "why": finding.why,
    }


def finding_series_frame(moved: Sequence[tuple[Finding, MovedSeries]]) -> pd.DataFrame:
    """Return the series of findings as a frame with a row for each step (``schema.FINDING_SERIES``), and the axes."""
    rows = [_of_series(step) | {"finding": finding.id, "why": step.why} for finding, step in moved]
    table = schema.frame_of(schema.FINDING_SERIES, rows)
    return with_axes(table, [dict(step.series.case.point) for _, step in moved])[0]


def history_frame(rows: Sequence[HistoryRow]) -> pd.DataFrame:
    """Return the history of a case as a frame (``schema.HISTORY``), with a column for each named metric."""
    table = schema.frame_of(schema.HISTORY, [_values(row) | {"started_at": row.started} for row in rows])
    return with_metrics(table, [row.metrics for row in rows])
