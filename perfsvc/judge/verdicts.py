"""Judge each series: the level of a candidate run against the level of its baseline, by the threshold of the series."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import isfinite
from typing import Any, NamedTuple

import numpy as np

from perfsvc.judge.causes import MOVES
from perfsvc.judge.comparison import NO_RATIO, Comparison, compare_sides, compare_with_devices
from perfsvc.judge.levels import center_of
from perfsvc.judge.pairs import compare_pairs
from perfsvc.judge.sides import Side, SideColumns
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
    same = set() if every else _unmoved(baseline, candidate)
    levels = _Levels.of([level for of_side in (baseline, candidate) for level in of_side.values() if level not in same])
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
        if level in same:
            continue
        own = baseline.get(series)
        sources = (series,) if own is not None else others.get(series, ())
        befores = (own,) if own is not None else tuple([baseline[source] for source in sources])
        before = befores[0] if befores else levels.fault_of_case(baseline, series)
        if level.status is Status.SKIPPED:
            if baseline_level := usable_of_case().get(_time_of(series)):
                judgements.append(levels.missing(series, baseline_level, level))
        elif fault := levels.fault(level):
            judgements.append(levels.row(series, Verdict.BROKEN, fault, before, level))
        elif all(map(levels.fault, befores)):
            why = levels.fault(before) if before is not None else ""
            judgements.append(levels.row(series, Verdict.NEW, _why_new(series, why, versions), before, level))
        else:
            to_compare.append(_ToCompare(series, sources[0], befores, level, limit_of(series)))
    judgements += _compared(levels, to_compare, every=every)
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


def _unmoved(baseline: Mapping[Series, Level], candidate: Mapping[Series, Level]) -> set[Level]:
    """Return the levels of both sides of auxiliary metrics that have the same finite values on both sides.

    Errors of results hardly ever change, and there are as many as times. They have one value a replica.
    """
    same: set[Level] = set()
    for series, level in candidate.items():
        if series.metric in AUXILIARY and (own := baseline.get(series)) is not None:
            pairs = zip(own.replicas, level.replicas, strict=False)
            if len(own.replicas) == len(level.replicas) and all(
                len(old) == len(new) == 1 and old[0] == new[0] and isfinite(old[0]) for old, new in pairs
            ):
                same |= {own, level}
    return same


def _fault(level: Level) -> str:
    """Return why a level has no values to compare; empty if it has."""
    if level.status is not Status.OK:
        return level.reason or f"{level.status} without a reason"
    if not level.replicas or not all(map(len, level.replicas)):
        return "a replica holds no values" if level.replicas else "no replica holds values"
    return ""


def _other_devices(
    baseline: Mapping[Series, Level], candidate: Iterable[Series], levels: "_Levels"
) -> dict[Series, tuple[Series, ...]]:
    """Return what the series of the candidate that the baseline does not have are compared with.

    These are the usable series of all other devices of the model, the latest run first. A series without any is absent.
    """
    unknown = set(candidate).difference(baseline)  # a set knows the hashes, which take long to compute
    by_model: dict[tuple[Case, str, str, CacheState], list[Series]] = {}
    for series, level in baseline.items() if unknown else ():
        if not levels.fault(level):
            by_model.setdefault(_of_model(series), []).append(series)
    if not unknown:
        return {}
    return {
        series: tuple(sorted(others, key=lambda source: (baseline[source].run, source.device), reverse=True))
        for series in candidate
        if series in unknown and (others := by_model.get(_of_model(series)))
    }


def _of_model(series: Series) -> tuple[Case, str, str, CacheState]:
    return series.case, series.device_model, series.metric, series.cache


class _ToCompare(NamedTuple):
    """A series with what it is compared with.

    Attributes:
        series: the series.
        source: the series itself if the baseline has it; else the first of the same series of other devices.
        baselines: the level of the series in the baseline, or its levels on the other devices.
        after: the level of the candidate.
        threshold: the smallest relevant change, as a fraction.
    """

    series: Series
    source: Series
    baselines: tuple[Level, ...]
    after: Level
    threshold: float

    @property
    def is_pair(self) -> bool:
        """True if one run of one device is compared with one run."""
        return len(self.baselines) == 1 and not self.baselines[0].further


def _compared(levels: "_Levels", rows: Sequence[_ToCompare], *, every: bool) -> list[Judgement]:
    """Compare each series with its baseline; without ``every``, auxiliary metrics that did not move may be absent."""
    sides = levels.sides
    pairs = np.array([at for at, row in enumerate(rows) if row.is_pair], np.int64)
    before, after = (
        np.array([levels.place[level] for level in of_side], np.int64)
        for of_side in ([rows[at].baselines[0] for at in pairs], [rows[at].after for at in pairs])
    )
    to_compare = np.minimum(sides.lowest[before], sides.lowest[after]) > 0
    limits = [rows[at].threshold for at in pairs[to_compare]]
    compared = compare_pairs(sides, before[to_compare], after[to_compare], limits)
    comparisons = dict(zip(pairs[to_compare].tolist(), compared, strict=True))
    unmoved = {at for at, comparison in comparisons.items() if comparison.verdict not in MOVES}
    return [
        _judge(levels, row, comparisons.get(at))
        for at, row in enumerate(rows)
        if every or at not in unmoved or row.series.metric not in AUXILIARY
    ]


def _judge(levels: "_Levels", row: _ToCompare, comparison: Comparison | None) -> Judgement:
    """Return the judgement on a series; ``comparison`` is None if the series is not among ``compare_pairs``."""
    series, before, after = row.series, row.baselines[0], row.after
    note, further = "", before.further
    if comparison is None:
        least, most = levels.range_of(row)
        if least <= 0:
            verdict, why = (Verdict.UNCHANGED, BOTH_ZERO) if least == most == 0 else (Verdict.INCONCLUSIVE, NO_RATIO)
            return levels.row(series, verdict, why, before, after)
        if len(row.baselines) > 1:
            devices = [level.replicas for level in row.baselines]
            comparison = compare_with_devices(devices, after.replicas, threshold=row.threshold)
            spread = f"{len(row.baselines)} other GPUs of {row.source.device_model}, whose spread is in the interval"
            note = f"; compared with {spread}"
        else:
            sides = levels.side(before), levels.side(after)
            comparison = compare_sides(*sides, further=further, threshold=row.threshold)
            if drift := _drift(comparison, *sides, further, row.threshold):
                comparison, further = drift, further[: FIRST_RUNS - 1]
                note = f"; compared with the baseline's first {FIRST_RUNS} runs, because the later ones drifted too"
    if len(row.baselines) == 1 and row.source.device != series.device:
        other = f"another {row.source.device_model} ({row.source.device})"
        note += f"; compared with {other}; the ratio covers their difference"
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
        else center_of(np.array([levels.center(level) for level in row.baselines])),
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
    gone = set(baseline).difference(candidate)
    if not gone:
        return {}
    absent = {series: level for series, level in baseline.items() if series in gone and not levels.fault(level)}
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
        faults: why a level cannot be compared; a level without a fault is absent.
        place: which of the sides each level without a fault is.
        sides: the sides of these levels.
        centers: each level without a fault as a number.
    """

    faults: Mapping[Level, str]
    place: Mapping[Level, int]
    sides: SideColumns
    centers: Mapping[Level, float]

    @classmethod
    def of(cls, every: Sequence[Level]) -> "_Levels":
        """Read levels."""
        faults = {level: fault for level in every if (fault := _fault(level))}
        with_values = [level for level in every if level not in faults]
        sides = SideColumns.of([level.replicas for level in with_values])
        place = dict(zip(with_values, range(len(with_values)), strict=True))
        centers = dict(zip(with_values, sides.centers.tolist(), strict=True))
        for at in np.flatnonzero(np.isnan(sides.lowest)).tolist():
            faults[with_values[at]] = "a value is not a finite number"
            del centers[with_values[at]]
        return cls(faults, place, sides, centers)

    def fault(self, level: Level) -> str:
        """Return why a level cannot be compared; empty if it can."""
        return self.faults.get(level, "")

    def center(self, level: Level) -> float:
        """Return a level without a fault as a number."""
        return self.centers[level]

    def side(self, level: Level) -> Side:
        """Return the side of a level without a fault whose values are not below 0."""
        return self.sides.side(self.place[level])

    def range_of(self, row: _ToCompare) -> tuple[float, float]:
        """Return the lowest and the highest value that a comparison reads."""
        levels = (row.after, *row.baselines)
        at = [self.place[level] for level in levels]
        further = [value for level in levels for run in level.further for value in run]
        return min(*further, *self.sides.lowest[at].tolist()), max(*further, *self.sides.highest[at].tolist())

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
            "baseline_s": self.centers.get(before) if before else None,
            "candidate_s": self.centers.get(after) if after else None,
            "baseline_replicas": len(before.replicas) + sum(map(len, before.further)) if before else None,
            "baseline_runs": 1 + len(before.further) if before else 1,
            "candidate_replicas": len(after.replicas) if after else None,
        }
        return Judgement(series, verdict, reason, **fields | others)


def _sort_key(judgement: Judgement) -> tuple[int, float, str, str, str, str]:
    series, verdict = judgement.series, judgement.verdict
    steepness = -(judgement.ratio or 0.0) if verdict is Verdict.REGRESSION else 0.0
    return ORDER.index(verdict), steepness, series.case.id, series.device, series.metric, series.cache
