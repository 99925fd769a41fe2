"""Judge each series: the level of a candidate run against the level of its baseline, by the threshold of the series."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain
from math import isfinite
from typing import Any

import numpy as np

from perfsvc.judge.causes import MOVES
from perfsvc.judge.comparison import NO_RATIO, Comparison, compare_pairs, compare_sides, compare_with_devices
from perfsvc.judge.levels import center_of
from perfsvc.judge.sides import Side, sides_of
from perfsvc.model import (
    AUXILIARY,
    FIRST_RUNS,
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
"""The order in which verdicts are listed, the most urgent first."""

BOTH_ZERO = "both are 0"


def verdicts(
    baseline: Mapping[Series, Level],
    candidate: Mapping[Series, Level],
    *,
    threshold: Callable[[Series], float] | float,
    every: bool = False,
) -> list[Judgement]:
    """Return one judgement for each judged series of either mapping, regressions first.

    A series is compared with the same series of the baseline. A device without a baseline of its own is compared with
    the other devices of its model, and the reason says so. With several other devices, each device counts as a replica:
    the baseline is the mean of the devices' levels, and the spread of the levels is the noise. With only one other
    device, the difference between devices is part of the ratio and not of its interval. Devices of different models are
    never compared, nor is the CPU device with a GPU. For every metric, lower is better.

    - A candidate that is wrong or failed is *broken*: one row for the case, whatever its metrics.
    - A correct result of the baseline that the candidate does not have is *missing*. If the candidate skipped a whole
      case that has a correct result in the baseline, the case has one *missing* row.
    - A candidate without a usable baseline level is *new*. A case whose version changed is *new* too; its older version
      is not missing.
    - Everything else is what ``compare`` returns.

    The metrics of ``model.UNJUDGED`` only explain times and have no row. The auxiliary metrics (``model.AUXILIARY``:
    energy and errors) have a row only if they moved.

    Args:
        baseline: the levels to compare with, of one run or of several.
        candidate: the levels of the run to judge.
        threshold: the smallest relative change that matters, or a function that returns it for a candidate's series.
        every: include the auxiliary metrics that did not move.
    """
    baseline, candidate = _without_unjudged(baseline), _without_unjudged(candidate)
    levels = _Levels.of([*baseline.values(), *candidate.values()])
    others = _other_devices(baseline, candidate, levels)
    versions = cache(lambda: _newest_versions(baseline))
    usable_of_case = cache(  # any usable level of the case
        lambda: {_time_of(series): level for series, level in baseline.items() if not levels.fault(level)}
    )
    limit_of = threshold if callable(threshold) else lambda _: threshold

    absent = _absent(baseline, candidate, levels, others)
    judgements = [levels.missing(series, level, None) for series, level in absent.items()]
    to_compare: list[_ToCompare] = []
    for series, level in candidate.items():
        own = baseline.get(series)
        if not every and series.metric in AUXILIARY and own is not None and own.replicas == level.replicas:
            continue
        sources = {series: own} if own is not None else {source: baseline[source] for source in others.get(series, ())}
        before = next(iter(sources.values()), None) or levels.fault_of_case(baseline, series)
        if level.status is Status.SKIPPED:
            if baseline_level := usable_of_case().get(_time_of(series)):
                judgements.append(levels.missing(series, baseline_level, level))
        elif fault := levels.fault(level):
            judgements.append(levels.row(series, Verdict.BROKEN, fault, before, level))
        elif all(map(levels.fault, sources.values())):
            why = levels.fault(before) if before is not None else ""
            judgements.append(levels.row(series, Verdict.NEW, _why_new(series, why, versions), before, level))
        else:
            to_compare.append(_ToCompare(series, sources, level, limit_of(series)))
    judgements += _compared(levels, to_compare)
    shown = [row for row in judgements if every or row.series.metric not in AUXILIARY or row.verdict in MOVES]
    return sorted(shown, key=_sort_key)


def exit_code(judgements: Iterable[Judgement | CheckVerdict], *, failed: bool, strict: bool) -> int:
    """Return the exit code of a command that judges.

    4 if a case failed or gave a wrong result; else 1 if a regression may be due to the code; else 3 if something is
    inconclusive and ``strict`` is set; else 0. A failure comes first, because a run with failures has not been judged
    in full: fix the failures, then look at times. Missing, new and improved cases do not change the exit code. A case
    that is slower because of its device or by chance does not change the exit code either: no change of the code could
    fix it.

    Args:
        judgements: the verdicts of the command.
        failed: something failed that has no verdict, such as a benchmark file that cannot be read.
        strict: return 3 if a verdict is inconclusive.
    """
    rows = tuple(judgements)
    seen = {row.verdict for row in rows}
    if failed or Verdict.BROKEN in seen:
        return 4
    if any(row.verdict is Verdict.REGRESSION and not (row.cause and row.cause.blameless) for row in rows):
        return 1
    return 3 if strict and Verdict.INCONCLUSIVE in seen else 0


def _without_unjudged(levels: Mapping[Series, Level]) -> Mapping[Series, Level]:
    if not any(series.metric in UNJUDGED for series in levels):
        return levels
    return {series: level for series, level in levels.items() if series.metric not in UNJUDGED}


def _fault(level: Level) -> str:
    """Return why a level cannot be compared; empty if it can."""
    if level.status is not Status.OK:
        return level.reason or f"{level.status} without a reason"
    if not level.replicas or not all(level.replicas):
        return "a replica holds no values" if level.replicas else "no replica holds values"
    # A sum is finite only if its values are; a sum that overflows decides nothing.
    is_finite = isfinite(sum(map(sum, level.replicas))) or all(map(isfinite, chain.from_iterable(level.replicas)))
    return "" if is_finite else "a value is not a finite number"


def _other_devices(
    baseline: Mapping[Series, Level], candidate: Iterable[Series], levels: "_Levels"
) -> dict[Series, tuple[Series, ...]]:
    """Return what the series of the candidate that the baseline does not have are compared with.

    These are the usable series of all other devices of the model, the latest run first. A series without any is absent.
    """
    unknown = [series for series in candidate if series not in baseline]
    by_model: dict[tuple[Case, str, str, CacheState], list[Series]] = {}
    for series, level in baseline.items() if unknown else ():
        if not levels.fault(level):
            by_model.setdefault(_of_model(series), []).append(series)
    return {
        series: tuple(sorted(others, key=lambda source: (baseline[source].run, source.device), reverse=True))
        for series in unknown
        if (others := by_model.get(_of_model(series)))
    }


def _of_model(series: Series) -> tuple[Case, str, str, CacheState]:
    return series.case, series.device_model, series.metric, series.cache


@dataclass(frozen=True, slots=True)
class _ToCompare:
    """A series with what it is compared with: its own level in the baseline, or the levels of other devices."""

    series: Series
    baselines: Mapping[Series, Level]
    after: Level
    threshold: float

    @property
    def before(self) -> Level:
        return next(iter(self.baselines.values()))

    @property
    def is_pair(self) -> bool:
        """True if one run of one device is compared with one run."""
        return len(self.baselines) == 1 and not self.before.further


def _compared(levels: "_Levels", rows: Sequence[_ToCompare]) -> list[Judgement]:
    """Compare each series with its baseline."""
    pairs = {at: row for at, row in enumerate(rows) if row.is_pair and levels.range_of(row)[0] > 0}
    sides = [(levels.side(row.before), levels.side(row.after)) for row in pairs.values()]
    comparisons = dict(zip(pairs, compare_pairs(sides, [row.threshold for row in pairs.values()]), strict=True))
    return [_judge(levels, row, comparisons.get(at)) for at, row in enumerate(rows)]


def _judge(levels: "_Levels", row: _ToCompare, comparison: Comparison | None) -> Judgement:
    """Return the judgement on a series; ``comparison`` is None if the series is not among ``compare_pairs``."""
    series, before, after = row.series, row.before, row.after
    note, further = "", before.further
    source = next(iter(row.baselines))
    if comparison is None:
        least, most = levels.range_of(row)
        if least <= 0:
            verdict, why = (Verdict.UNCHANGED, BOTH_ZERO) if least == most == 0 else (Verdict.INCONCLUSIVE, NO_RATIO)
            return levels.row(series, verdict, why, before, after)
        if len(row.baselines) > 1:
            devices = [level.replicas for level in row.baselines.values()]
            comparison = compare_with_devices(devices, after.replicas, threshold=row.threshold)
            spread = f"{len(row.baselines)} other GPUs of {source.device_model}, whose spread is in the interval"
            note = f"; compared with {spread}"
        else:
            sides = levels.side(before), levels.side(after)
            comparison = compare_sides(*sides, further=further, threshold=row.threshold)
            if drift := _drift(comparison, *sides, further, row.threshold):
                comparison, further = drift, further[: FIRST_RUNS - 1]
                note = f"; compared with the baseline's first {FIRST_RUNS} runs, because the later ones drifted too"
    if len(row.baselines) == 1 and source.device != series.device:
        note += f"; compared with another {source.device_model} ({source.device}); the ratio covers their difference"
    return levels.row(
        series,
        comparison.verdict,
        comparison.reason + note,
        before,
        after,
        ratio=comparison.ratio,
        low=comparison.low,
        high=comparison.high,
        baseline_s=levels.center(after) / comparison.ratio
        if further
        else levels.center(before)
        if len(row.baselines) == 1
        else center_of(np.array([levels.center(level) for level in row.baselines.values()])),
        baseline_replicas=len(before.replicas) + sum(map(len, further)),
        baseline_runs=1 + len(further),
        smallest=comparison.smallest,
        between_nights=comparison.between_nights,
    )


def _drift(
    comparison: Comparison, before: Side, after: Side, further: Sequence[Sequence[float]], threshold: float
) -> Comparison | None:
    """Return the comparison with the first runs of a baseline if only these show that the candidate moved; else None.

    A slow drift of unchanged code takes the baseline along, run by run. The first runs drifted least. Each run is
    compared twice in this way, so the whole interval must lie beyond the threshold.

    Args:
        comparison: the comparison with all runs of the baseline.
        before: the baseline's first run.
        after: the candidate.
        further: for each further run of the baseline the value of each replica.
        threshold: the smallest relevant change, as a fraction.
    """
    if comparison.verdict in MOVES or len(further) < FIRST_RUNS:
        return None
    first = compare_sides(before, after, further=further[: FIRST_RUNS - 1], threshold=threshold)
    limit = 1 + threshold
    is_beyond = first.low is not None and first.high is not None and (first.low > limit or first.high < 1 / limit)
    return first if is_beyond and first.verdict in MOVES else None


def _newest_versions(baseline: Iterable[Series]) -> dict[Hashable, int]:
    """Return the newest version of each case, by a key that is equal for all versions of the case."""
    versions: dict[Hashable, int] = {}
    for series in baseline:
        key = _any_version(series)
        versions[key] = max(series.case.version, versions.get(key, series.case.version))
    return versions


def _why_new(series: Series, fault: str, versions: Callable[[], Mapping[Hashable, int]]) -> str:
    """Return the reason of a new series.

    Args:
        series: the series.
        fault: why its level in the baseline cannot be compared; empty if the baseline does not have the series.
        versions: returns the newest version of each case in the baseline.
    """
    if fault:
        return f"the baseline has no level: {fault}"
    if (version := versions().get(_any_version(series))) is not None:
        return f"version {series.case.version} of a case whose history ended with version {version}"
    return "the baseline does not have it"


def _absent(
    baseline: Mapping[Series, Level],
    candidate: Mapping[Series, Level],
    levels: "_Levels",
    others: Mapping[Series, Sequence[Series]],
) -> dict[Series, Level]:
    """Return the baseline's correct results that the candidate does not have.

    Left out are:

    - results of an older version of a case,
    - metrics of a broken or skipped case,
    - results of another device, if they stand in for the missing baseline of a candidate's device.
    """
    absent = {
        series: level for series, level in baseline.items() if series not in candidate and not levels.fault(level)
    }
    if not absent:
        return absent
    present = {_any_version(series) for series in candidate}
    not_ok = {_any_version(_time_of(series)) for series, level in candidate.items() if level.status is not Status.OK}
    devices = {series.device for series in candidate}
    stand_ins = {source for used in others.values() for source in used if source.device not in devices}
    return {
        series: level
        for series, level in absent.items()
        if series not in stand_ins
        and _any_version(series) not in present
        and _any_version(_time_of(series)) not in not_ok
    }


def _time_of(series: Series) -> Series:
    """Return the time series of the same case. A failed or skipped case has only its time series."""
    return replace(series, metric=TIME)


def _any_version(series: Series) -> Hashable:
    """Return a key that is equal for all versions of a case."""
    return replace(series, case=replace(series.case, version=0))


@dataclass(frozen=True, slots=True)
class _Levels:
    """What all levels of both mappings need, computed together: a run may have ten thousand series.

    Attributes:
        faults: why each level cannot be compared; empty if it can. The keys are the ids of the objects: to hash a level
            means to hash all its samples.
        centers: the level of each level without a fault, as a number.
        sides: its side in a comparison; None if a value is below 0.
        ranges: its lowest and its highest value, of ``further`` too.
    """

    faults: Mapping[int, str]
    centers: Mapping[int, float]
    sides: Mapping[int, Side | None]
    ranges: Mapping[int, tuple[float, float]]

    @classmethod
    def of(cls, every: Sequence[Level]) -> "_Levels":
        """Read levels, which must live as long as the object."""
        faults = {id(level): _fault(level) for level in every}
        usable = [level for level in every if not faults[id(level)]]
        sides, centers, ranges = sides_of([level.replicas for level in usable])
        for at, level in enumerate(usable):
            if level.further:
                further = list(chain.from_iterable(level.further))
                ranges[at] = min(*further, ranges[at][0]), max(*further, ranges[at][1])
        ids = [id(level) for level in usable]
        by_id = dict(zip(ids, centers, strict=True)), dict(zip(ids, sides, strict=True))
        return cls(faults, *by_id, dict(zip(ids, ranges, strict=True)))

    def fault(self, level: Level) -> str:
        """Return why a level cannot be compared; empty if it can."""
        return self.faults[id(level)]

    def center(self, level: Level) -> float:
        """Return a level without a fault as a number."""
        return self.centers[id(level)]

    def side(self, level: Level) -> Side:
        """Return the side of a level without a fault whose values are not below 0."""
        side = self.sides[id(level)]
        assert side is not None  # noqa: S101 - for mypy: the caller compares only values above 0
        return side

    def range_of(self, row: _ToCompare) -> tuple[float, float]:
        """Return the lowest and the highest value that a comparison reads."""
        ranges = [self.ranges[id(level)] for level in (row.after, *row.baselines.values())]
        return min(least for least, _ in ranges), max(most for _, most in ranges)

    def fault_of_case(self, baseline: Mapping[Series, Level], series: Series) -> Level | None:
        """Return the faulty level of the case's time, whose fault explains why no metric was measured; else None."""
        level = baseline.get(_time_of(series))
        return level if level and self.fault(level) else None

    def missing(self, series: Series, before: Level, after: Level | None) -> Judgement:
        """Return the judgement on a series that the candidate does not have."""
        absent = f"run {before.run} has it and the candidate does not"
        reason = absent if after is None else after.reason or "skipped without a reason"
        return self.row(series, Verdict.MISSING, reason, before, after)

    def row(
        self, series: Series, verdict: Verdict, reason: str, before: Level | None, after: Level | None, **others: Any
    ) -> Judgement:
        """Return a judgement; ``before`` is the baseline's level and ``after`` the candidate's.

        Args:
            series: the series.
            verdict: the verdict.
            reason: why.
            before: None if the baseline does not have the series.
            after: None if the candidate does not have it.
            others: further fields of the judgement, such as its ratio.
        """
        fields: dict[str, Any] = {
            "baseline_run": before.run if before else None,
            "candidate_run": after.run if after else None,
            "baseline_s": self.centers.get(id(before)),
            "candidate_s": self.centers.get(id(after)),
            "baseline_replicas": len(before.replicas) + sum(map(len, before.further)) if before else None,
            "baseline_runs": 1 + len(before.further) if before else 1,
            "candidate_replicas": len(after.replicas) if after else None,
        }
        return Judgement(series, verdict, reason, **fields | others)


def _sort_key(judgement: Judgement) -> tuple[int, float, str, str, str, str]:
    series, verdict = judgement.series, judgement.verdict
    steepness = -(judgement.ratio or 0.0) if verdict is Verdict.REGRESSION else 0.0
    return ORDER.index(verdict), steepness, series.case.id, series.device, series.metric, series.cache
