"""Alerts: what the history of a series raises tonight, where the verdict against its baseline does not say it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from perfsvc import judge
from perfsvc.model import TIME, Direction, Judgement, Series, Shift, Suspect, Verdict
from perfsvc.report import units
from perfsvc.store import Night, Store

NIGHTS = 200
"""How far back a history is watched."""

VERDICTS: Mapping[Direction, Verdict] = {direction: verdict for verdict, direction in judge.MOVES.items()}

QUIET = judge.COMPARED - judge.MOVES.keys()
"""The verdicts beside which an alert says something new."""


def alerts(store: Store, run: int, judged: Mapping[Series, Judgement]) -> dict[Series, Suspect]:
    """What the histories of tonight's times raise tonight, where the verdict does not say it itself."""
    if store.run(run).provenance.dirty:
        return {}
    nights = store.nights(run, NIGHTS)
    quiet = [one for one in judged if one.metric == TIME and judged[one].verdict in QUIET]
    watched = {one: nights[place] for one in quiet if (place := (one.device, one.case, one.mode)) in nights}
    if not watched:
        return {}
    runs = sorted({night.run for history in watched.values() for night in history})
    values, segments = _matrix(watched.values(), runs)
    groups = [f"{series.device} {series.case.benchmark}" for series in watched]
    raised = judge.watch_many(values, groups, segments)
    return {
        series: _alert(judged[series], of_series[-1], runs, row)
        for series, of_series, row in zip(watched, raised, values, strict=True)
        if of_series and of_series[-1].night == len(runs) - 1
    }


def _matrix(histories: Iterable[Sequence[Night]], runs: Sequence[int]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """The levels of each series, a column a run, NaN where it was not measured; and their segments.

    A night that did not measure a series is in the segment of the last one that did.
    """
    places = {run: place for place, run in enumerate(runs)}
    levels, segments = [], []
    for history in histories:
        level, segment = np.full(len(runs), np.nan), np.zeros(len(runs), dtype=np.int64)
        for night in history:
            level[places[night.run]] = np.exp(np.mean(np.log(night.medians_s))) if night.medians_s else np.nan
            segment[places[night.run] :] = night.segment
        levels.append(level)
        segments.append(segment)
    return np.array(levels), np.array(segments)


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
