"""Alerts: what the history of a series raises tonight, where the verdict against its baseline does not say it."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from perfsvc import judge
from perfsvc.model import BESIDE, MAX_ERROR, Direction, Judgement, Series, Shift, Suspect, Verdict
from perfsvc.report import units
from perfsvc.store import Night, Place, Store

NIGHTS = 200
"""How far back a history is watched."""

VERDICTS: Mapping[Direction, Verdict] = {direction: verdict for verdict, direction in judge.MOVES.items()}

QUIET = judge.COMPARED - judge.MOVES.keys()
"""The verdicts beside which an alert says something new."""


def alerts(store: Store, run: int, judged: Mapping[Series, Judgement]) -> dict[Series, Suspect]:
    """What the histories of tonight's times and metrics raise tonight, where the verdict does not say it itself.

    A metric that has a verdict only where it moved is watched like the others. Of an error no change is told that is
    smaller than what matters of errors.
    """
    if store.run(run).provenance.dirty:
        return {}
    watched = dict(_watched(store.nights(run, NIGHTS), run, judged))
    if not watched:
        return {}
    runs = sorted({night.run for history in watched.values() for night in history})
    values, segments = _matrix(watched.values(), runs)
    groups = [f"{one.series.device} {one.series.case.benchmark} {one.series.metric}" for one in watched]
    raised = judge.watch_many(values, groups, segments)
    found = [
        _alert(judgement, of_series[-1], runs, row)
        for judgement, of_series, row in zip(watched, raised, values, strict=True)
        if of_series and of_series[-1].night == len(runs) - 1
    ]
    return {one.series: one for one in found if _matters(one)}


def _watched(
    nights: Mapping[tuple[Place, str], list[Night]], run: int, judged: Mapping[Series, Judgement]
) -> Iterator[tuple[Judgement, list[Night]]]:
    """The judgements beside which an alert says something new, with the nights to watch.

    A history that was never another is left out: nothing can have changed.
    """
    models = {series.device: series.device_model for series in judged}
    for ((device, case, mode), metric), history in nights.items():
        series = Series(case, device, models.get(device, ""), metric, mode)
        quiet = Judgement(series, Verdict.UNCHANGED, candidate_run=run) if metric in BESIDE else None
        judgement = judged.get(series, quiet)
        if judgement and judgement.verdict in QUIET and len({night.values for night in history}) > 1:
            yield judgement, history


def _matters(suspect: Suspect) -> bool:
    """Whether an alert is of a change that somebody wants to know of."""
    ratio = suspect.judgement.ratio or 1.0
    return suspect.series.metric != MAX_ERROR or abs(math.log(ratio)) > math.log1p(judge.ERROR_THRESHOLD)


def _matrix(histories: Iterable[Sequence[Night]], runs: Sequence[int]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """The levels of each series, a column a run, NaN where it was not measured; and their segments.

    A night that did not measure a series is in the segment of the last one that did.
    """
    places = {run: place for place, run in enumerate(runs)}
    levels, segments = [], []
    for history in histories:
        level, segment = np.full(len(runs), np.nan), np.zeros(len(runs), dtype=np.int64)
        for night in history:
            level[places[night.run]] = _level(night)
            segment[places[night.run] :] = night.segment
        levels.append(level)
        segments.append(segment)
    return np.array(levels), np.array(segments)


def _level(night: Night) -> float:
    """The geometric mean of a night's replicas; NaN where it has none, as where a value is zero or below."""
    return float(np.exp(np.mean(np.log(night.values)))) if night.values and min(night.values) > 0 else math.nan


def _alert(judgement: Judgement, alert: judge.Alert, runs: Sequence[int], levels: NDArray[np.float64]) -> Suspect:
    """The suspect that an alert makes: tonight against the last night that was measured before the change.

    A drift may have begun with the first night there is: that one is then the night before.
    """
    measured = np.flatnonzero(np.isfinite(levels))
    earlier = measured[measured < alert.index]
    before = int(earlier[-1] if earlier.size else measured[0])
    direction, shift = Direction(alert.direction), Shift(alert.kind)
    ratio = float(levels[-1] / levels[before])
    moved = replace(
        judgement,
        verdict=VERDICTS[direction],
        ratio=ratio,
        low=None,
        high=None,
        baseline_run=runs[before],
        baseline_s=float(levels[before]),
        candidate_s=float(levels[-1]),
        reason=f"a {shift.value} in its history since run {runs[alert.index]}",
    )
    evidence = f"{units.percent(ratio)} since run {runs[alert.index]}, a {shift.value} in its history"
    return Suspect(moved, shift, direction, evidence)
