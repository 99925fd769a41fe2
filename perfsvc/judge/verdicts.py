"""One row a series: what a candidate run says against its baseline."""

from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain, islice
from math import isfinite

import numpy as np

from perfsvc.judge.borrowed import compare_with_boards
from perfsvc.judge.causes import MOVES
from perfsvc.judge.comparison import NO_RATIO, compare_sides
from perfsvc.judge.estimates import center_of, median
from perfsvc.judge.ratio import Side, sides_of
from perfsvc.model import (
    AUXILIARY,
    TIME,
    UNJUDGED,
    CacheState,
    Case,
    CheckVerdict,
    Judgement,
    Level,
    Series,
    Status,
    Verdict,
)

ORDER = (
    Verdict.REGRESSION,
    Verdict.BROKEN,
    Verdict.MISSING,
    Verdict.IMPROVEMENT,
    Verdict.INCONCLUSIVE,
    Verdict.NEW,
    Verdict.UNCHANGED,
)
"""What a person should see first."""


def verdicts(
    baseline: Mapping[Series, Level],
    candidate: Mapping[Series, Level],
    *,
    threshold: Callable[[Series], float] | float,
    alpha: float = 0.01,
    every: bool = False,
) -> list[Judgement]:
    """One judgement for each series in either mapping whose metric is judged, regressions first.

    A series is compared with the baseline's equal series. A GPU that the baseline does not know borrows from the
    others of its model, and the reason says so. Of several it borrows the mean of their levels, and what those differ
    by is the noise of the comparison: a GPU counts as a replica does. From one alone nobody can tell what GPUs
    differ by: that is then part of the ratio and not of its interval. GPUs of different models are never compared,
    nor is the CPU device with a GPU. Every metric is better when it is lower.

    - A candidate that is wrong or failed is *broken*: one row for the case, whatever its metrics.
    - What the baseline has a right result of and the candidate does not have at all is *missing*. So is, in one row, a
      case that the candidate skipped; without a right result in the baseline it has no row.
    - Without a baseline's level (none, or one that was not ok) a candidate is *new*. A case whose version changed is
      new too, and its older version is not missed.
    - Everything else is what ``compare`` says.

    The metrics of ``model.UNJUDGED`` only say why a time is as it is: they have no row. Energy, which is measured where
    somebody asks for it, and the error of a result have one where they moved and no other.

    Args:
        baseline: the levels to compare with, of one run or of several.
        candidate: the levels of the run to judge.
        threshold: the smallest relative change that matters, or a function that gives it for a series of the candidate.
        alpha: the probability of an interval that misses the true ratio.
        every: with a row of what is otherwise told of where it moved alone.
    """
    baseline, candidate = _judged(baseline), _judged(candidate)
    judgements, compared = [], []
    right = {series: level for series, level in baseline.items() if not _fault(level)}
    pairs = _pairs(baseline, right, candidate)
    ended = cache(lambda: _last_versions(baseline))
    cases = cache(lambda: {_whole(series): level for series, level in right.items()})
    for series, level in candidate.items():
        if not every and _is_still(series, baseline.get(series), level):
            continue
        homes = pairs.get(series, (series,))
        before = baseline.get(homes[0]) or _fault_of_case(baseline, homes[0])
        if level.status is Status.SKIPPED:
            if had := cases().get(_whole(series)):
                judgements.append(_missing(series, had, level))
        elif fault := _fault(level):
            judgements.append(_row(series, Verdict.BROKEN, fault, before, level))
        elif before is None or homes[0] not in right:
            judgements.append(_row(series, Verdict.NEW, _why_new(series, before, ended()), before, level))
        else:
            compared.append(_Pair(series, {home: baseline[home] for home in homes}, level))
    judgements += _comparisons(compared, threshold, alpha)
    judgements += [_missing(series, level, None) for series, level in _absent(right, candidate, pairs).items()]
    return sorted((one for one in judgements if every or _is_told(one)), key=_place)


def exit_code(judgements: Iterable[Judgement | CheckVerdict], *, failed: bool, strict: bool) -> int:
    """The exit code of a command that judges.

    4 where a case failed or gave a wrong result, else 1 where something regressed that may be its code's doing, else 3
    where something is inconclusive and ``strict`` asks for it, else 0. A failure comes first, since a run with holes
    has not been judged in full: cure those, then look at times. Missing, new and improved cases change nothing, nor
    does what is slower by its GPU or by chance: nobody can mend that in the code.

    Args:
        judgements: the verdicts of the command.
        failed: something failed that no verdict tells of, such as a benchmark file that cannot be read.
        strict: whether inconclusive is not good enough.
    """
    told = tuple(judgements)
    seen = {judgement.verdict for judgement in told}
    if failed or Verdict.BROKEN in seen:
        return 4
    if any(one.verdict is Verdict.REGRESSION and not (one.cause and one.cause.blameless) for one in told):
        return 1
    return 3 if strict and Verdict.INCONCLUSIVE in seen else 0


def _is_still(series: Series, before: Level | None, after: Level) -> bool:
    """Whether a series that is told of where it moved alone has the very values that it had."""
    return series.metric in AUXILIARY and before is not None and before.replicas == after.replicas


def _is_told(judgement: Judgement) -> bool:
    return judgement.series.metric not in AUXILIARY or judgement.verdict in MOVES


def _judged(levels: Mapping[Series, Level]) -> dict[Series, Level]:
    return {series: level for series, level in levels.items() if series.metric not in UNJUDGED}


def _pairs(
    baseline: Container[Series], right: Mapping[Series, Level], candidate: Iterable[Series]
) -> dict[Series, tuple[Series, ...]]:
    """The baseline's series that each of the candidate's is compared with; those without one are left out.

    That is its own, or else those of all other GPUs of its model that are right, the one of the latest run first.
    """
    pairs: dict[Series, tuple[Series, ...]] = {series: (series,) for series in candidate if series in baseline}
    strange = [series for series in candidate if series not in pairs]
    boards: dict[tuple[Case, str, str, CacheState], list[Series]] = {}
    for series in right if strange else ():
        boards.setdefault(_of_model(series), []).append(series)
    for series in strange:
        if lenders := boards.get(_of_model(series)):
            latest_first = sorted(lenders, key=lambda one: (right[one].run, one.device), reverse=True)
            pairs[series] = tuple(latest_first)
    return pairs


def _of_model(series: Series) -> tuple[Case, str, str, CacheState]:
    return series.case, series.device_model, series.metric, series.cache


def _fault(level: Level) -> str:
    """Why a level cannot be compared; empty if it can."""
    if level.status is not Status.OK:
        return level.reason or f"{level.status} without a reason"
    values = list(chain.from_iterable(level.replicas))
    if not values or not all(level.replicas):
        return "a replica holds no values" if level.replicas else "no replica holds values"
    return "" if all(map(isfinite, values)) else "a value is not a finite number"


@dataclass(frozen=True, slots=True)
class _Pair:
    """A series with a right result on both sides; the baseline's is its own, or those of the GPUs that lend it."""

    series: Series
    lenders: Mapping[Series, Level]
    after: Level

    @property
    def before(self) -> Level:
        """The baseline's level, or that of the first GPU that lends it."""
        return next(iter(self.lenders.values()))

    @property
    def without_ratio(self) -> Judgement | None:
        """What is said of values that have no ratio."""
        replicas = [*chain.from_iterable(one.replicas for one in (*self.lenders.values(), self.after))]
        least = min(map(min, replicas))
        if least == 0 == max(map(max, replicas)):
            return _row(self.series, Verdict.UNCHANGED, "both are 0", self.before, self.after)
        if least <= 0:
            return _row(self.series, Verdict.INCONCLUSIVE, NO_RATIO, self.before, self.after)
        return None


def _comparisons(
    pairs: Sequence[_Pair], threshold: Callable[[Series], float] | float, alpha: float
) -> Iterator[Judgement]:
    """What ``compare`` says of some series."""
    without = [(pair, pair.without_ratio) for pair in pairs]
    yield from (row for _, row in without if row)
    left = [pair for pair, row in without if not row]
    sides = iter(
        sides_of([one.replicas for pair in left for one in (*pair.lenders.values(), pair.after)]) if left else ()
    )
    for pair in left:
        limit = threshold(pair.series) if callable(threshold) else threshold
        *levels, now = islice(sides, len(pair.lenders) + 1)
        yield _compared(pair, levels, now, threshold=limit, alpha=alpha)


def _compared(pair: _Pair, levels: Sequence[Side], now: Side, *, threshold: float, alpha: float) -> Judgement:
    """What ``compare`` says of a series, by the sides of its baseline and of the candidate."""
    series, before, after = pair.series, pair.before, pair.after
    if len(levels) > 1:
        boards = [one.replicas for one in pair.lenders.values()]
        found = compare_with_boards(boards, after.replicas, threshold=threshold, alpha=alpha)
    else:
        found = compare_sides(levels[0], now, threshold=threshold, alpha=alpha)
    return Judgement(
        series,
        found.verdict,
        found.reason + _borrowed(series, next(iter(pair.lenders)), len(levels)),
        ratio=found.ratio,
        low=found.low,
        high=found.high,
        baseline_run=before.run,
        candidate_run=after.run,
        baseline_s=center_of(np.array([center_of(one.medians) for one in levels])),
        candidate_s=center_of(now.medians),
        smallest=found.smallest,
        baseline_replicas=len(before.replicas),
        candidate_replicas=len(after.replicas),
    )


def _borrowed(series: Series, home: Series, boards: int) -> str:
    """What a reader has to know of a level that is another GPU's; nothing of the series' own."""
    if boards > 1:
        return f"; compared with {boards} other GPUs of {home.device_model}, whose spread is in the interval"
    if home.device != series.device:
        return f"; compared with another {home.device_model} ({home.device}), whose difference is part of the ratio"
    return ""


def _last_versions(baseline: Iterable[Series]) -> dict[Hashable, int]:
    """The highest version of each series, by ``_any_version``."""
    ended: dict[Hashable, int] = {}
    for series in baseline:
        bare = _any_version(series)
        ended[bare] = max(series.case.version, ended.get(bare, series.case.version))
    return ended


def _why_new(series: Series, before: Level | None, ended: Mapping[Hashable, int]) -> str:
    if before is not None:
        return f"the baseline has no level: {_fault(before)}"
    if (version := ended.get(_any_version(series))) is not None:
        return f"version {series.case.version} of a case whose history ended with version {version}"
    return "the baseline does not have it"


def _absent(
    right: Mapping[Series, Level],
    candidate: Mapping[Series, Level],
    pairs: Mapping[Series, Sequence[Series]],
) -> dict[Series, Level]:
    """What of the baseline's right results the candidate does not have.

    Left out are the older version of a case, the metrics of a case that has none tonight because it is broken or
    skipped, and what stands in for a GPU that the candidate was not measured on.
    """
    gone = {series: level for series, level in right.items() if series not in candidate}
    if not gone:
        return gone
    present = {_any_version(series) for series in candidate}
    told = {_any_version(_whole(series)) for series, level in candidate.items() if level.status is not Status.OK}
    boards = {series.device for series in candidate}
    lent = {home for homes in pairs.values() for home in homes if home.device not in boards}
    return {
        series: level
        for series, level in gone.items()
        if series not in lent and _any_version(series) not in present and _any_version(_whole(series)) not in told
    }


def _missing(series: Series, before: Level, after: Level | None) -> Judgement:
    absent = f"run {before.run} has it and the candidate does not"
    reason = absent if after is None else after.reason or "skipped without a reason"
    return _row(series, Verdict.MISSING, reason, before, after)


def _fault_of_case(baseline: Mapping[Series, Level], series: Series) -> Level | None:
    """The level that says why a whole case has none of its metrics."""
    level = baseline.get(_whole(series))
    return level if level and _fault(level) else None


def _whole(series: Series) -> Series:
    """The series that stands for all metrics of a case where it has none of them."""
    return replace(series, metric=TIME)


def _any_version(series: Series) -> Hashable:
    """By what a series is told from every other but itself in another version of its case."""
    return replace(series, case=replace(series.case, version=0))


def _row(series: Series, verdict: Verdict, reason: str, before: Level | None, after: Level | None) -> Judgement:
    return Judgement(
        series,
        verdict,
        reason,
        baseline_run=before.run if before else None,
        candidate_run=after.run if after else None,
        baseline_s=_center(before),
        candidate_s=_center(after),
        baseline_replicas=len(before.replicas) if before else None,
        candidate_replicas=len(after.replicas) if after else None,
    )


def _center(level: Level | None) -> float | None:
    """The level as one number; None where it has none."""
    return None if level is None or _fault(level) else _level_of(level)


def _level_of(level: Level) -> float:
    return center_of(np.array([median(np.asarray(one)) for one in level.replicas]))


def _place(judgement: Judgement) -> tuple[int, float, str, str, str, str]:
    series, verdict = judgement.series, judgement.verdict
    steepness = -(judgement.ratio or 0.0) if verdict is Verdict.REGRESSION else 0.0
    return ORDER.index(verdict), steepness, series.case.id, series.device, series.metric, series.cache
