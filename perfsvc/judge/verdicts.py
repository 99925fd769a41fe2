"""Judge each series: the level of a candidate run against the level of its baseline, by the threshold of the series."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfsvc.judge.causes import MOVES
from perfsvc.judge.comparison import (
    BOTH_ZERO,
    NO_RATIO,
    Comparison,
    compare_columns,
    compare_with_devices,
    compare_zeros,
)
from perfsvc.judge.levels import Floats, center_of, levels_of
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
from perfsvc.model.levels import LevelColumns, SideColumns

Ints = NDArray[np.int64]

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

DRIFTED = f"; compared with the baseline's first {FIRST_RUNS} runs, because the later ones drifted too"


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
    both = _BothSides.of(baseline, candidate)
    old, new = both.old, both.new
    others = _other_devices(both)
    against = both.own.copy()
    for at, sources in others.items():
        if len(sources) == 1:
            against[at] = sources[0]
    versions = cache(lambda: _newest_versions(old.levels.series))
    usable_of_case = cache(  # any usable level of the case
        lambda: {_time_of(series): at for at, series in enumerate(old.levels.series) if at not in old.faults}
    )
    limit_of = threshold if callable(threshold) else lambda _: threshold

    judgements = [both.missing(old.levels.series[at], at, None) for at in _absent(both, others)]
    pairs, remaining = both.pairs(against)
    judgements += _compared(both, against[pairs], pairs, limit_of)
    for at in remaining:
        series = new.levels.series[at]
        own = int(both.own[at])
        sources = (own,) if own >= 0 else others.get(at, ())
        before = sources[0] if sources else both.fault_of_case(series)
        if at in new.levels.bad and new.levels.bad[at][0] is Status.SKIPPED:
            is_own = own >= 0 and own not in old.faults
            if (usable := own if is_own else usable_of_case().get(_time_of(series))) is not None:
                absent = both.missing(series, usable, at)
                judgements.append(absent if is_own else replace(absent, baseline_s=None))
        elif fault := new.faults.get(at):
            judgements.append(both.row(series, Verdict.BROKEN, fault, before, at))
        elif all(source in old.faults for source in sources):
            why = old.faults[before] if before is not None else ""
            judgements.append(both.row(series, Verdict.NEW, _why_new(series, why, versions), before, at))
        else:
            judgements.append(_compared_with_devices(both, sources, at, limit_of(series)))
    judged = (row for row in judgements if row.series.metric not in UNJUDGED)
    shown = (row for row in judged if every or row.series.metric not in AUXILIARY or row.verdict in MOVES)
    return sorted(shown, key=_sort_key)


def exit_code(judgements: Iterable[Judgement | CheckVerdict], *, failed: bool, strict: bool) -> int:
    """Return the exit code of a command that judges.

    4 if a case failed, gave a wrong result or is missing; else 1 if a regression may be due to the code; else 3 if
    something is inconclusive and ``strict`` is set; else 0. A failure comes first, because a run with failures has not
    been judged in full: fix the failures, then look at times. New and improved cases do not change the exit code. A
    case that is slower because of its device or by chance does not change it either: no change of the code could fix
    it.

    Args:
        judgements: the verdicts of the command.
        failed: something failed that has no verdict, such as a benchmark file that cannot be read.
        strict: return 3 if a verdict is inconclusive.
    """
    rows = tuple(judgements)
    seen = {row.verdict for row in rows}
    if failed or seen & {Verdict.BROKEN, Verdict.MISSING}:
        return 4
    if any(row.verdict is Verdict.REGRESSION and not (row.cause and row.cause.blameless) for row in rows):
        return 1
    return 3 if strict and Verdict.INCONCLUSIVE in seen else 0


def _other_devices(both: "_BothSides") -> dict[int, tuple[int, ...]]:
    """Return what the levels of the candidate are compared with whose series the baseline does not have.

    These are the usable levels of all other devices of the model, the latest run first. A level without any is absent.
    Levels are given by their places.
    """
    unknown = np.flatnonzero(both.own < 0).tolist()
    if not unknown:
        return {}
    levels, faults = both.old.levels, both.old.faults
    by_model: dict[tuple[Case, str, str, CacheState], list[int]] = {}
    for at, series in enumerate(levels.series):
        if at not in faults:
            by_model.setdefault(_of_model(series), []).append(at)
    return {
        at: tuple(sorted(others, key=lambda other: (levels.runs[other], levels.series[other].device), reverse=True))
        for at in unknown
        if (others := by_model.get(_of_model(both.new.levels.series[at])))
    }


def _of_model(series: Series) -> tuple[Case, str, str, CacheState]:
    return series.case, series.device_model, series.metric, series.cache


def _compared(
    both: "_BothSides", before: Ints, pairs: Ints, limit_of: Callable[[Series], float]
) -> Iterator[Judgement]:
    """Compare levels of one device each.

    Args:
        both: the levels.
        before: the place of each baseline.
        pairs: the place of each candidate.
        limit_of: returns the smallest relevant change of a series, as a fraction.
    """
    old, new, further = both.old, both.new, both.old.levels.further
    limits = [limit_of(new.levels.series[at]) for at in pairs.tolist()]
    comparisons = compare_columns(old.sides, before, new.sides, pairs, limits, further=further)
    drifted = _drifts(both, before, pairs, limits, comparisons)
    for at, (own, place) in enumerate(zip(before.tolist(), pairs.tolist(), strict=True)):
        series, source, runs = new.levels.series[place], old.levels.series[own], further.get(own, ())
        comparison, note = comparisons[at], ""
        if comparison.reason in {BOTH_ZERO, NO_RATIO}:
            yield both.row(series, comparison.verdict, comparison.reason, own, place)
            continue
        if at in drifted:
            comparison, note, runs = drifted[at], DRIFTED, runs[: FIRST_RUNS - 1]
        if source.device != series.device:
            note += (
                f"; compared with another {source.device_model} ({source.device}); the ratio covers their difference"
            )
        yield both.compared(comparison, own, place, note, runs)


def _drifts(
    both: "_BothSides", before: Ints, pairs: Ints, limits: Sequence[float], comparisons: Sequence[Comparison]
) -> dict[int, Comparison]:
    """Return the comparisons with the first runs of baselines if only these show that the candidate moved, by place.

    A slow drift of unchanged code takes the baseline along, run by run. The first runs drifted least. Each run is
    compared twice in this way, so the whole interval must lie beyond the threshold.

    Args:
        both: the levels.
        before: the place of each baseline.
        pairs: the place of each candidate.
        limits: the smallest relevant changes, as fractions.
        comparisons: the comparisons with all runs of the baselines.
    """
    further = {at: runs[: FIRST_RUNS - 1] for at, runs in both.old.levels.further.items() if len(runs) >= FIRST_RUNS}
    asked = [
        at
        for at, own in enumerate(before.tolist())
        if own in further and comparisons[at].verdict not in MOVES and comparisons[at].reason != NO_RATIO
    ]
    of_asked = [limits[at] for at in asked]
    first = compare_columns(both.old.sides, before[asked], both.new.sides, pairs[asked], of_asked, further=further)
    return {
        at: of_one
        for at, of_one, limit in zip(asked, first, of_asked, strict=True)
        if of_one.verdict in MOVES and of_one.low is not None and of_one.high is not None
        if of_one.low > 1 + limit or of_one.high < 1 / (1 + limit)
    }


def _compared_with_devices(both: "_BothSides", sources: Sequence[int], at: int, threshold: float) -> Judgement:
    """Compare a level with those of several other devices.

    Args:
        both: the levels.
        sources: the places of the baseline's levels on the other devices.
        at: the place of the candidate's level.
        threshold: the smallest relevant change, as a fraction.
    """
    old, new, before = both.old, both.new, sources[0]
    levels, candidate = [old.levels.level(source) for source in sources], new.levels.level(at).medians
    values = [value for level in levels for run in (level.medians, *level.further) for value in run]
    if (least := min(*values, *candidate)) <= 0:
        zeros = compare_zeros(least, max(values), max(candidate))
        return both.row(new.levels.series[at], zeros.verdict, zeros.reason, before, at)
    comparison = compare_with_devices([level.medians for level in levels], candidate, threshold=threshold)
    model = old.levels.series[before].device_model
    note = f"; compared with {len(sources)} other GPUs of {model}, whose spread is in the interval"
    judged = both.compared(comparison, before, at, note, levels[0].further)
    return judged if levels[0].further else replace(judged, baseline_s=center_of(old.centers[list(sources)]))


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


def _absent(both: "_BothSides", others: Mapping[int, Sequence[int]]) -> list[int]:
    """Return the places of the baseline's correct results that the candidate does not have.

    Left out are:

    - results of an older version of a case,
    - metrics of a broken or skipped case,
    - results of another device, if they stand in for the missing baseline of a candidate's device.
    """
    is_gone = np.ones(len(both.old.levels), np.bool_)
    is_gone[both.own[both.own >= 0]] = False
    absent = [at for at in np.flatnonzero(is_gone).tolist() if at not in both.old.faults]
    if not absent:
        return []
    old, new = both.old.levels.series, both.new.levels.series
    present = set(map(_any_version, new))
    not_ok = {_any_version(_time_of(new[at])) for at in both.new.levels.bad}
    devices = {series.device for series in new}
    stand_ins = {source for used in others.values() for source in used if old[source].device not in devices}
    return [
        at
        for at in absent
        if at not in stand_ins
        and _any_version(old[at]) not in present
        and _any_version(_time_of(old[at])) not in not_ok
    ]


def _time_of(series: Series) -> Series:
    """Return the time series of the same case. A failed or skipped case has only its time series."""
    return replace(series, metric=TIME)


def _any_version(series: Series) -> Hashable:
    """Return a key that is equal for all versions of a case."""
    return replace(series, case=replace(series.case, version=0))


@dataclass(frozen=True, slots=True)
class _JudgedLevels:
    """The levels of one side.

    Attributes:
        levels: the levels.
        faults: why a level cannot be compared, by place; a level without a fault is absent.
        centers: each level as a number; undefined for a level with a fault.
    """

    levels: LevelColumns
    faults: Mapping[int, str]
    centers: Floats

    @classmethod
    def of(cls, given: Mapping[Series, Level]) -> "_JudgedLevels":
        """Read levels."""
        levels = LevelColumns.of(given)
        sides = levels.sides
        faults = {
            at: "a value is not a finite number" if sides.sizes[at] else "no replica holds values"
            for at in np.flatnonzero(np.isnan(sides.lowest)).tolist()
        }
        faults |= {at: reason or f"{status} without a reason" for at, (status, reason) in levels.bad.items()}
        return cls(levels, faults, levels_of(sides.medians)[0])

    @property
    def sides(self) -> SideColumns:
        """What a comparison needs to know of each level."""
        return self.levels.sides

    def center(self, at: int) -> float:
        """Return a level without a fault as a number."""
        return float(self.centers[at])


@dataclass(frozen=True, slots=True)
class _BothSides:
    """The levels of the baseline and of the candidate.

    Attributes:
        old: the baseline.
        new: the candidate.
        own: the place in the baseline of the series of each level of the candidate; -1 if the baseline lacks it.
    """

    old: _JudgedLevels
    new: _JudgedLevels
    own: Ints

    @classmethod
    def of(cls, baseline: Mapping[Series, Level], candidate: Mapping[Series, Level]) -> "_BothSides":
        """Read both sides."""
        old, new = _JudgedLevels.of(baseline), _JudgedLevels.of(candidate)
        if old.levels.series == new.levels.series:  # as in most pairs of runs
            return cls(old, new, np.arange(len(new.levels)))
        places = old.levels.places
        return cls(old, new, np.array([places.get(series, -1) for series in new.levels.series], np.int64))

    def pairs(self, against: Ints) -> tuple[Ints, list[int]]:
        """Return the places of the candidate's levels that ``compare_columns`` compares, and those of the others.

        ``against`` is the place of the baseline of each of the candidate's levels; below 0 without one.
        """
        is_usable = _all_but(self.new.faults, len(self.new.levels)) & (against >= 0)
        is_usable[is_usable] = _all_but(self.old.faults, len(self.old.levels))[against[is_usable]]
        return np.flatnonzero(is_usable), np.flatnonzero(~is_usable).tolist()

    def fault_of_case(self, series: Series) -> int | None:
        """Return the faulty level of the case's time, whose fault explains why no metric was measured; else None."""
        at = self.old.levels.places.get(_time_of(series))
        return at if at is not None and at in self.old.faults else None

    def missing(self, series: Series, before: int, after: int | None) -> Judgement:
        """Return the judgement on a series that the candidate does not have."""
        absent = f"run {self.old.levels.runs[before]} has it and the candidate does not"
        reason = absent if after is None else self.new.levels.bad[after][1] or "skipped without a reason"
        return self.row(series, Verdict.MISSING, reason, before, after)

    def compared(
        self, comparison: Comparison, before: int, after: int, note: str, further: Sequence[Sequence[float]]
    ) -> Judgement:
        """Return the judgement that follows from a comparison; ``further`` are the baseline's further runs in it."""
        judged = self.row(self.new.levels.series[after], comparison.verdict, comparison.reason + note, before, after)
        return replace(
            judged,
            ratio=comparison.ratio,
            low=comparison.low,
            high=comparison.high,
            baseline_s=self.new.center(after) / comparison.ratio if further else judged.baseline_s,
            smallest=comparison.smallest,
            baseline_replicas=int(self.old.sides.sizes[before]) + sum(map(len, further)),
            baseline_runs=1 + len(further),
            between_nights=comparison.between_nights,
        )

    def row(self, series: Series, verdict: Verdict, reason: str, before: int | None, after: int | None) -> Judgement:
        """Return a judgement without a ratio; ``before`` and ``after`` are the places of its levels, if it has any."""
        fields: dict[str, Any] = {}
        if before is not None:
            levels, further = self.old.levels, self.old.levels.further.get(before, ())
            fields["baseline_run"] = int(levels.runs[before])
            fields["baseline_s"] = self.old.center(before) if before not in self.old.faults else None
            fields["baseline_replicas"] = int(levels.sides.sizes[before]) + sum(map(len, further))
            fields["baseline_runs"] = 1 + len(further)
        if after is not None:
            fields["candidate_run"] = int(self.new.levels.runs[after])
            fields["candidate_s"] = self.new.center(after) if after not in self.new.faults else None
            fields["candidate_replicas"] = int(self.new.sides.sizes[after])
        return Judgement(series, verdict, reason, **fields)


def _all_but(places: Iterable[int], count: int) -> NDArray[np.bool_]:
    """Return True for each of ``count`` levels but those at some places."""
    others = np.ones(count, np.bool_)
    others[list(places)] = False
    return others


def _sort_key(judgement: Judgement) -> tuple[int, float, str, str, str, str]:
    series, verdict = judgement.series, judgement.verdict
    steepness = -(judgement.ratio or 0.0) if verdict is Verdict.REGRESSION else 0.0
    return ORDER.index(verdict), steepness, series.case.id, series.device, series.metric, series.cache
