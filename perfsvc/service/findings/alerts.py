"""Find alerts: changes in the history of a series that the verdicts of the newest run do not report."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from math import log
from typing import Self

import numpy as np

from perfsvc import judge, units
from perfsvc.judge.changes.scores import Floats, Ints
from perfsvc.model import AUXILIARY, Cause, ChangeKind, Direction, Judgement, Series, Suspect, Verdict
from perfsvc.service.compare.sides import sides_of
from perfsvc.service.findings.steps import is_large
from perfsvc.store import SeriesHistory, Store

HISTORY_RUNS = 200
"""The newest runs that are searched for changes."""

UNANSWERED_RUNS = 14
"""How many runs an unanswered alert is repeated for, after the run that raised it."""

VERDICTS = {direction: verdict for verdict, direction in judge.MOVES.items()}

NOT_MOVED = judge.COMPARED - judge.MOVES.keys()
"""The verdicts that compare two levels and report no move, so that an alert adds something."""


@dataclass(frozen=True, slots=True)
class Alerts:
    """What the histories of the series show in a run.

    Attributes:
        suspects: the series with an alert, each as a suspect.
        ended: the series whose last change was a plateau and is over: the direction of the change, and its first run.
    """

    suspects: Mapping[Series, Suspect] = field(default_factory=dict)
    ended: Mapping[Series, tuple[Direction, int]] = field(default_factory=dict)


def alerts(
    store: Store, run: int, judged: Mapping[Series, Judgement], threshold: judge.ThresholdOption = None
) -> Alerts:
    """Return the changes that the histories of series show, and that the verdicts of the run do not report.

    An alert reports a change of at least the threshold of its series. It is repeated in later runs until it is
    answered, but in at most ``UNANSWERED_RUNS`` runs. An alert is answered if the series was measured again, if a
    finding holds the series or held it until the series recovered, or if the baseline of the series was taken after the
    change. An alert is over if the change was a plateau that has ended.

    Auxiliary metrics, which have a verdict only if they moved, are watched too.

    Args:
        store: the database.
        run: the newest run; a run with uncommitted changes has no alerts.
        judged: the verdicts of the run, by series.
        threshold: the smallest relevant change as a fraction, or rules; None for the default of each kind of device.
    """
    if store.runs.get(run).provenance.dirty:
        return Alerts()
    watched = dict(_watched(store.series.histories_until(run, HISTORY_RUNS), run, judged))
    if not watched:
        return Alerts()
    runs = np.unique(np.concatenate([history.runs for history in watched.values()]))
    values, segments = _matrix(list(watched.values()), runs)
    numbers: list[int] = runs.tolist()
    groups = [
        f"{judgement.series.device} {judgement.series.case.benchmark} {judgement.series.metric}"
        for judgement in watched
    ]
    devices = store.devices.all()
    smallest = [
        judge.threshold_of(series.case, series.metric, devices[series.device].kind, threshold)
        for series in (judgement.series for judgement in watched)
    ]
    detected = judge.detect_changes_together(values, groups, segments, smallest=smallest)
    reported = _runs_with_findings(store)
    suspects, runs_before, ended = {}, {}, {}
    for judgement, series_alerts, levels, segment_of_run in zip(watched, detected, values, segments, strict=True):
        if series_alerts and series_alerts[-1].end is not None:
            ended[judgement.series] = series_alerts[-1].direction, numbers[series_alerts[-1].start]
        if not series_alerts or series_alerts[-1].raised < len(numbers) - 1 - UNANSWERED_RUNS:
            continue
        change = SeriesChange.of(series_alerts, levels, segment_of_run)
        if not change or _is_accepted(judgement, change, numbers):
            continue
        direction, since = change.alert.direction, numbers[change.alert.raised :]
        if _is_answered(store, (judgement.series, direction), since, reported):
            continue
        suspects[judgement.series] = _suspect(judgement, change, numbers)
        runs_before[judgement.series] = [numbers[position] for position in change.last_before]
    baselines = _last_runs_with_other_code(store, run, suspects, runs_before)
    with_baselines = {
        series: replace(suspect, judgement=replace(suspect.judgement, baseline_run=baselines[series]))
        for series, suspect in suspects.items()
    }
    return Alerts(with_baselines, ended)


def _watched(
    histories: Mapping[Series, SeriesHistory], run: int, judged: Mapping[Series, Judgement]
) -> Iterator[tuple[Judgement, SeriesHistory]]:
    """Yield each judgement whose verdict reports no move, with the history of its series.

    A history of equal values is skipped. It holds no change, and must not count among the series for which the detector
    limits the share of false alerts.
    """
    for series, history in histories.items():
        unjudged = Judgement(series, Verdict.UNCHANGED, candidate_run=run) if series.metric in AUXILIARY else None
        judgement = judged.get(series, unjudged)
        if judgement and judgement.verdict in NOT_MOVED and _varies(history.level):
            yield judgement, history


def _varies(values: Floats) -> bool:
    first = values[0]
    return not ((values == first) | (np.isnan(values) & np.isnan(first))).all()


def _matrix(histories: Sequence[SeriesHistory], runs: Ints) -> tuple[Floats, Ints]:
    """Return the levels and the segments (ids of environments) of each series, shape (series, runs).

    The level is NaN in a run that did not measure the series. Such a run gets the segment of the last run that measured
    the series.
    """
    levels = np.full((len(histories), runs.size), np.nan)
    segments = np.zeros(levels.shape, np.intp)
    for row, history in enumerate(histories):
        measured = np.searchsorted(runs, history.runs)
        levels[row, measured] = history.level
        last_measured = np.searchsorted(measured, np.arange(runs.size), side="right") - 1
        segments[row] = history.segments[np.maximum(last_measured, 0)]
    return levels, segments


def _runs_with_findings(store: Store) -> Mapping[Series, set[int | None]]:
    """For each series of a finding, return the last run that showed the change, and the run of the recovery.

    The last run of a finding without a known cause is left out, because its series must be measured again.
    """
    runs: dict[Series, set[int | None]] = defaultdict(set)
    for finding in store.findings.all():
        for moved in finding.moved:
            runs[moved.series].add(moved.recovered_run)
            if finding.cause is not Cause.UNCONFIRMED:
                runs[moved.series].add(moved.last_run)
    return runs


def _is_accepted(judgement: Judgement, change: "SeriesChange", runs: Sequence[int]) -> bool:
    """Return whether the series' baseline was taken after the change, so that the new level is accepted."""
    if judgement.baseline_run not in runs:
        return False
    return change.contains(runs.index(judgement.baseline_run), judgement.baseline_s)


def _is_answered(
    store: Store,
    moved: tuple[Series, Direction],
    since: Sequence[int],
    reported: Mapping[Series, set[int | None]],
) -> bool:
    """Return whether a confirmation or a finding has answered an alert since the alert was raised.

    A slower series needs a conclusive confirmation. After an inconclusive confirmation, the next night that shows the
    change raises a finding.

    Args:
        store: holds the confirmations.
        moved: the series, and the direction in which it moved.
        since: the runs from the run that raised the alert to the newest run. A confirmation by the newest run does not
            count.
        reported: the runs in which findings saw series moved or recovered. The newest run counts too: its findings may
            have been updated already.
    """
    series, direction = moved
    earlier = since[:-1]
    if not earlier:
        return False
    answered = store.confirmations.series(earlier, conclusive=direction is Direction.SLOWER)
    return series in answered or not reported.get(series, set()).isdisjoint(since)


def _suspect(judgement: Judgement, change: "SeriesChange", runs: Sequence[int]) -> Suspect:
    """Return an alert as a suspect, whose judgement keeps the baseline run of the verdict."""
    since = runs[change.alert.start]
    kind, direction = change.alert.kind, change.alert.direction
    moved = replace(
        judgement,
        verdict=VERDICTS[direction],
        ratio=change.ratio,
        low=None,
        high=None,
        baseline_s=change.before,
        candidate_s=float(change.values[-1]),
        reason=f"a {kind.value} in its history since run {since}",
    )
    evidence = f"{units.percent(change.ratio)} since run {since}, a {kind.value} in its history"
    # The runs since a large change show it already, also if this run is the first to raise an alert.
    shown_before = change.alert.raised < len(runs) - 1 or (is_large(moved) and since < runs[-1])
    return Suspect(moved, kind, direction, evidence, since=since if shown_before else None)


def _last_runs_with_other_code(
    store: Store, run: int, suspects: Mapping[Series, Suspect], before: Mapping[Series, Sequence[int]]
) -> dict[Series, int]:
    """For each series, return the latest run in ``before`` with other code than the newest run.

    An alert may place a change some runs too late. Then the last run before that place already has the new code.
    ``before`` lists the runs of a series, latest first. If no run had other code, the latest run is returned. Each
    round of the loop compares the next run of every series whose code did not differ so far.
    """
    baselines = {series: runs[0] for series, runs in before.items()}
    keys = {series: (series.device, series.case, series.cache) for series in before}
    binaries = store.binaries.used(keys.values(), {run, *chain.from_iterable(before.values())}) if before else {}
    candidates = {}
    for series, key in keys.items():
        used = binaries[key]  # a run with the newest run's own binary cannot have other code
        candidates[series] = iter([old for old in before[series] if run not in used or used.get(old) != used[run]])
    while latest := {series: old for series, runs in candidates.items() if (old := next(runs, None)) is not None}:
        sides = sides_of(store, [replace(suspects[series].judgement, baseline_run=latest[series]) for series in latest])
        candidates = {series: candidates[series] for series in latest if series in sides and sides[series].code}
        baselines |= {series: old for series, old in latest.items() if series not in candidates}
    return baselines


# --- a change --------------------------------------------------------------------------------------------------------


def is_nearer(level: float | None, target: float | None, other: float | None) -> bool:
    """Return whether a level is nearer to a target than to another level, by ratio; False if any is None or zero."""
    if not level or not target or not other:
        return False
    return abs(log(level / target)) < abs(log(level / other))


@dataclass(frozen=True, slots=True)
class SeriesChange:
    """The last alert of a series, with the levels before and after it in the newest segment.

    Runs are counted from 0; ``old`` and ``new`` hold only runs that measured the series.

    Attributes:
        alert: the alert.
        values: the level of each run, NaN for a run that did not measure the series, shape (runs,).
        old: the runs of the level before the change, at least one.
        new: the runs since the change; none if the newest run is the only run.
    """

    alert: judge.Alert
    values: Floats
    old: Ints
    new: Ints

    @classmethod
    def of(cls, alerts: Sequence[judge.Alert], values: Floats, segments: Ints) -> Self | None:
        """Return the change that the newest run shows; None if its segment has no alert, or if the change is gone.

        A trend may begin with the first run of a segment (the runs in one environment); that run is then the level
        before the change. A change is gone if it was a plateau, or if it was undone before the detector saw it.

        Args:
            alerts: the alerts of the series, oldest first.
            values: the level of each run, NaN for a run that did not measure the series.
            segments: the segment of each run.
        """
        # The first run of the newest segment. The level before the change begins there, or after an earlier alert.
        begin = int(np.flatnonzero(np.diff(segments, prepend=segments[0] - 1))[-1])
        if not alerts or alerts[-1].end is not None or alerts[-1].start < begin or np.isnan(values[-1]):
            return None
        *earlier, alert = alerts
        starts = (start for before in earlier for start in _possible_starts(before) if start < alert.start)
        first = max([begin, *starts])
        measured = np.flatnonzero(np.isfinite(values))
        measured = measured[measured >= first]
        old_runs = max(int((measured < alert.start).sum()), 1)
        change = cls(alert, values, measured[:old_runs], measured[old_runs:])
        if not change.new.size:
            return None
        # A mixture always counts: each run shows one of its two levels.
        counts = alert.raised == len(values) - 1 or alert.kind is ChangeKind.MIXTURE
        return change if counts or is_nearer(float(values[-1]), change.after, change.before) else None

    @property
    def before(self) -> float:
        """The level before the change."""
        return float(np.median(self.values[self.old]))

    @property
    def after(self) -> float:
        """The level when the alert was raised."""
        return float(np.median(self.values[self.new[self.new <= max(self.alert.raised, self.new[0])]]))

    @property
    def ratio(self) -> float:
        """The newest run over the level before."""
        return float(self.values[-1]) / self.before

    @property
    def last_before(self) -> list[int]:
        """The runs that may be the last one of the level before, the latest first."""
        earliest = self._earliest - 1
        return [int(run) for run in self.old[: earliest - 1 if earliest else None : -1]]

    @property
    def _earliest(self) -> int:
        """The earliest run that the new level may have begun with, among ``old`` and ``new``."""
        return judge.earliest_start(self.values[np.concatenate([self.old, self.new])], self.old.size)

    def contains(self, run: int, level: float | None) -> bool:
        """Return whether a run with this level lies after the change.

        The change may have begun before the start that its alert names; such a run counts if its level is nearer to the
        level after the change. The first run of ``old`` always lies before the change.
        """
        if run <= self.old[0]:
            return False
        earliest = np.concatenate([self.old, self.new])[self._earliest]
        return run >= self.alert.start or bool(run >= earliest and is_nearer(level, self.after, self.before))


def _possible_starts(alert: judge.Alert) -> tuple[int, ...]:
    """Return the runs at which the level after an alert may begin.

    A trend may end with the run that raised it, and after a plateau the level before returns.
    """
    starts = (alert.start, alert.raised) if alert.kind is ChangeKind.TREND else (alert.start,)
    return starts if alert.end is None else (*starts, alert.end)
