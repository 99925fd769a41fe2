"""Alerts: what the history of a series says that nobody has answered, where the verdict does not say it itself."""

from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from math import log, log1p

import numpy as np

from perfsvc import judge, units
from perfsvc.judge.changes.scores import Floats, Ints
from perfsvc.model import AUXILIARY, MAX_ERROR, Direction, Finding, Judgement, Series, Suspect, Verdict
from perfsvc.service.compare.code import SidesOf
from perfsvc.service.findings.changes import Change
from perfsvc.store import Nights, Place, Store

NIGHTS = 200
"""How far back a history is watched."""

WAITS = 14
"""For how many nights after its own an alert stands that nobody has answered."""

VERDICTS: Mapping[Direction, Verdict] = {direction: verdict for verdict, direction in judge.MOVES.items()}

NO_RULES = judge.Thresholds()

QUIET = judge.COMPARED - judge.MOVES.keys()
"""The verdicts beside which an alert says something new."""


def alerts(
    store: Store,
    run: int,
    judged: Mapping[Series, Judgement],
    thresholds: judge.Thresholds = NO_RULES,
    sides_of: SidesOf | None = None,
) -> dict[Series, Suspect]:
    """What the histories of tonight's times and metrics say, where the verdict does not say it itself.

    An alert stands from its night on, for ``WAITS`` nights more, until it is answered: its series was measured again,
    or put into a finding, or recovered from one; or tonight's level is that of a baseline which was taken since.

    A metric that has a verdict only where it moved is watched like the others. Of an error no change is told that is
    smaller than what matters of errors, nor of anything a change smaller than a rule lays down.
    """
    if store.run(run).provenance.dirty:
        return {}
    watched = dict(_watched(store.nights(run, NIGHTS), run, judged))
    if not watched:
        return {}
    runs = np.unique(np.concatenate([history.runs for history in watched.values()]))
    values, segments = _matrix(list(watched.values()), runs)
    groups = [f"{one.series.device} {one.series.case.benchmark} {one.series.metric}" for one in watched]
    raised = judge.detect_changes_together(values, groups, segments)
    history = _History(store, runs.tolist(), sides_of or SidesOf(store))
    found = [
        history.suspect(judgement, change)
        for judgement, of_series, row, of_segment in zip(watched, raised, values, segments, strict=True)
        if of_series and history.is_recent(of_series[-1])
        if (change := Change.of(of_series, row, of_segment)) and history.stands(judgement, change)
    ]
    return {one.series: one for one in found if _matters(one, thresholds)}


@dataclass(frozen=True)
class _History:
    """The runs that are watched, oldest first, the last one tonight's; each is read from the store once."""

    store: Store
    runs: Sequence[int]
    sides_of: SidesOf

    def is_recent(self, alert: judge.Alert) -> bool:
        """Whether an alert may still stand."""
        return alert.raised >= len(self.runs) - 1 - WAITS

    def stands(self, judgement: Judgement, change: Change) -> bool:
        """Whether the recent alert of a change says something that nobody has answered."""
        if self._accepted(judgement, change):
            return False
        since = tuple(self.runs[change.alert.raised : -1])
        if not since:
            return True
        series = judgement.series
        again = series in self._measured_again(since)
        # Tonight is among them: what it settled already must not look like news to whoever settles it once more.
        return not again and not any(_tells(one, series, [*since, self.runs[-1]]) for one in self._findings)

    def suspect(self, judgement: Judgement, change: Change) -> Suspect:
        """The suspect that a change makes: tonight against the last night before it that ran other code."""
        since = self.runs[change.alert.start]
        direction, kind = change.alert.direction, change.alert.kind
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
        return Suspect(replace(moved, baseline_run=self._before(moved, change)), kind, direction, evidence)

    def _before(self, judgement: Judgement, change: Change) -> int:
        """The last run of the old level whose code is not tonight's; where none differs, the last one there was.

        An alert may tell of a change some nights late: the night before is then one that ran the new code already.
        """
        before = [self.runs[night] for night in change.last_before]
        return next((run for run in before if not self._same_code(judgement, run)), before[0])

    def _same_code(self, judgement: Judgement, before: int) -> bool:
        ran = self._ran((judgement.series.device, judgement.series.case, judgement.series.cache))
        old, new = ran.get(before), ran.get(self.runs[-1])
        if old is not None and old == new:
            return True
        told = self.sides_of([replace(judgement, baseline_run=before)]).get(judgement.series)
        return told is not None and told.code

    def _accepted(self, judgement: Judgement, change: Change) -> bool:
        """Whether the baseline beside which tonight's verdict is quiet is of the time after the change."""
        if judgement.baseline_run not in self.runs:
            return False
        return change.contains(self.runs.index(judgement.baseline_run), judgement.baseline_s)

    @cached_property
    def _ran(self) -> Callable[[Place], Mapping[int, int]]:
        return cache(lambda place: self.store.ran(place, self.runs))

    @cached_property
    def _measured_again(self) -> Callable[[tuple[int, ...]], Container[Series]]:
        return cache(self.store.measured_again)

    @cached_property
    def _findings(self) -> Sequence[Finding]:
        return self.store.findings(every=True)


def _tells(finding: Finding, series: Series, runs: Sequence[int]) -> bool:
    """Whether one of some runs saw a series move, or back, by a finding."""
    return any(one.series == series and not {one.last_run, one.recovered_run}.isdisjoint(runs) for one in finding.moved)


def _watched(
    nights: Mapping[tuple[Place, str], Nights], run: int, judged: Mapping[Series, Judgement]
) -> Iterator[tuple[Judgement, Nights]]:
    """The judgements beside which an alert says something new, with the nights to watch.

    A history that was never another in them is left out: nothing can have changed, and it is none of the many among
    which a night's false alerts are held.
    """
    models = {series.device: series.device_model for series in judged}
    for ((device, case, cache_state), metric), history in nights.items():
        series = Series(case, device, models.get(device, ""), metric, cache_state)
        quiet = Judgement(series, Verdict.UNCHANGED, candidate_run=run) if metric in AUXILIARY else None
        judgement = judged.get(series, quiet)
        if judgement and judgement.verdict in QUIET and _varies(history.values):
            yield judgement, history


def _varies(values: Floats) -> bool:
    """Whether any night has other values than the first."""
    first = values[0]
    return not ((values == first) | (np.isnan(values) & np.isnan(first))).all()


def _matters(suspect: Suspect, thresholds: judge.Thresholds) -> bool:
    """Whether an alert is of a change that somebody wants to know of."""
    series, ratio = suspect.series, suspect.judgement.ratio or 1.0
    least = thresholds.configured(series.case, series.metric)
    if least is None:
        least = judge.ERROR_THRESHOLD if series.metric == MAX_ERROR else 0.0
    return not least or abs(log(ratio)) > log1p(least)


def _matrix(histories: Collection[Nights], runs: Ints) -> tuple[Floats, Ints]:
    """The levels of each series, a column a run, NaN where it was not measured; and their segments.

    A night that did not measure a series is in the segment of the last one that did.
    """
    series = np.repeat(np.arange(len(histories)), [history.runs.size for history in histories])
    nights = np.searchsorted(runs, np.concatenate([history.runs for history in histories]))
    levels = np.full((len(histories), runs.size), np.nan)
    levels[series, nights] = _levels(_below_each_other([history.values for history in histories]))
    segments, last = np.zeros(levels.shape, np.intp), np.zeros(levels.shape, np.intp)
    segments[series, nights] = np.concatenate([history.segments for history in histories])
    last[series, nights] = nights
    return levels, np.take_along_axis(segments, np.maximum.accumulate(last, axis=1), axis=1)


def _below_each_other(tables: Sequence[Floats]) -> Floats:
    """Tables one below the other, as wide as the widest; NaN where one is narrower."""
    found = np.full((sum(map(len, tables)), max(table.shape[1] for table in tables)), np.nan)
    end = 0
    for table in tables:
        found[end : end + len(table), : table.shape[1]] = table
        end += len(table)
    return found


def _levels(values: Floats) -> Floats:
    """Return the level of each run's replicas; NaN for a run without any, or with a value of zero or below."""
    centers, _, _ = judge.levels_of(values)
    return np.where(np.isfinite(centers) & ~(values <= 0).any(axis=1), centers, np.nan)
