"""Data frames of everything but measurements: runs, samples, verdicts, findings and the history of a case."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from perfsvc.model import CacheState, Finding, Judgement, MovedSeries, RunRow, Series, Status
from perfsvc.report.export import schema
from perfsvc.report.export.frames import with_axes, with_metrics
from perfsvc.report.rows import SEPARATOR, HistoryRow


def runs_frame(runs: Sequence[RunRow]) -> pd.DataFrame:
    """Return runs as a frame with a row for each run (``schema.RUNS``)."""
    return schema.frame_of(schema.RUNS, [_run(run) for run in runs])


def _run(run: RunRow) -> tuple[Any, ...]:
    origin = run.provenance
    return (
        run.id,
        run.state.value,
        origin.started,
        run.finished,
        origin.label,
        origin.suite,
        origin.commit,
        origin.dirty,
        origin.branch,
        origin.host,
        origin.cpu,
        origin.perfsvc_version,
        origin.python_version,
        origin.command_line,
        origin.seed,
        origin.replicas,
        run.cases,
        sum(run.counts.values()),
        *(run.counts.get(status, 0) for status in (Status.OK, Status.WRONG, Status.FAILED, Status.SKIPPED)),
        SEPARATOR.join(run.devices),
        run.why_excluded,
    )


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


def _verdict(judgement: Judgement) -> tuple[Any, ...]:
    return (
        judgement.candidate_run,
        *_series(judgement.series),
        judgement.verdict.value,
        judgement.reason,
        judgement.cause and judgement.cause.value,
        judgement.ratio,
        judgement.low,
        judgement.high,
        judgement.smallest,
        judgement.baseline_s,
        judgement.candidate_s,
        judgement.baseline_run,
        None if judgement.baseline_run is None else judgement.baseline_runs,
        judgement.baseline_replicas,
        judgement.candidate_replicas,
        judgement.between_nights,
    )


def _series(series: Series) -> tuple[str, ...]:
    case = series.case
    names = (case.id, case.benchmark, case.variant, case.point_text)
    return (*names, series.device, series.device_model, series.metric, series.cache.value)


def findings_frame(findings: Sequence[Finding]) -> pd.DataFrame:
    """Return findings as a frame with a row for each finding (``schema.FINDINGS``)."""
    return schema.frame_of(schema.FINDINGS, [_finding(finding) for finding in findings])


def _finding(finding: Finding) -> tuple[Any, ...]:
    worst = finding.worst
    return (
        finding.id,
        finding.state.value,
        finding.cause.value,
        finding.root_cause,
        finding.first_run,
        finding.last_run,
        finding.direction and finding.direction.value,
        len({moved.series for moved in finding.moved}),
        worst and worst.series.case.id,
        worst and worst.series.device,
        worst and worst.ratio,
        finding.evidence,
        finding.why,
        finding.reason,
        finding.by,
        finding.owner,
        finding.at,
        finding.ignored_until,
    )


def finding_series_frame(moved: Sequence[tuple[Finding, MovedSeries]]) -> pd.DataFrame:
    """Return the series of findings as a frame with a row for each step (``schema.FINDING_SERIES``), and the axes."""
    table = schema.frame_of(schema.FINDING_SERIES, [_moved(finding, step) for finding, step in moved])
    return with_axes(table, [dict(step.series.case.point) for _, step in moved])[0]


def _moved(finding: Finding, moved: MovedSeries) -> tuple[Any, ...]:
    return (
        finding.id,
        *_series(moved.series),
        moved.step,
        moved.change.value,
        moved.direction.value,
        moved.root_cause,
        moved.ratio,
        moved.low,
        moved.high,
        moved.baseline_s,
        moved.candidate_s,
        moved.baseline_run,
        moved.first_run,
        moved.last_run,
        moved.recovered_run,
        moved.why,
    )


def history_frame(rows: Sequence[HistoryRow]) -> pd.DataFrame:
    """Return the history of a case as a frame (``schema.HISTORY``), with a column for each named metric."""
    return with_metrics(schema.frame_of(schema.HISTORY, list(_history(rows))), [row.metrics for row in rows])


def _history(rows: Iterable[HistoryRow]) -> Iterator[tuple[Any, ...]]:
    for row in rows:
        yield (
            row.run,
            row.started,
            row.commit,
            row.dirty,
            row.label,
            row.case,
            row.device,
            row.device_model,
            row.cache.value,
            row.status.value,
            row.reason,
            row.median_s,
            row.low_s,
            row.high_s,
            row.replicas,
            row.excluded,
            row.why,
        )
