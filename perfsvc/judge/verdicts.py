"""Judge each series: the level of a candidate run against the level of its baseline, by the threshold of the series."""

from collections.abc import Callable, Container, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import chain
from math import isfinite
from types import MappingProxyType

import numpy as np

from perfsvc.judge.causes import MOVES
from perfsvc.judge.comparison import NO_RATIO, Comparison, compare_sides, compare_with_devices
from perfsvc.judge.levels import center_of
from perfsvc.judge.sides import Side, sides_of
from perfsvc.model import (
    AUXILIARY,
    FIRST_RUNS,
    MAX_ERROR,
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
    usable = {series: level for series, level in baseline.items() if not levels.fault(level)}
    baseline_sources = _baseline_sources(baseline, usable, candidate)
    usable_of_case = {_time_of(series): level for series, level in usable.items()}  # any usable level of the case
    versions = _newest_versions(baseline)
    limit_of = threshold if callable(threshold) else lambda _: threshold

    judgements = [
        levels.missing(series, level, None) for series, level in _absent(usable, candidate, baseline_sources).items()
    ]
    for series, level in candidate.items():
        before = baseline.get(series)
        if not every and series.metric in AUXILIARY and before is not None and before.replicas == level.replicas:
            continue
        sources = {source: baseline[source] for source in baseline_sources.get(series, ())}
        before = next(iter(sources.values()), None) or levels.fault_of_case(baseline, series)
        if level.status is Status.SKIPPED:
            if baseline_level := usable_of_case.get(_time_of(series)):
                judgements.append(levels.missing(series, baseline_level, level))
        elif fault := levels.fault(level):
            judgements.append(levels.row(series, Verdict.BROKEN, fault, before, level))
        elif usable.keys().isdisjoint(sources):
            why = levels.fault(before) if before is not None else ""
            judgements.append(levels.row(series, Verdict.NEW, _why_new(series, why, versions), before, level))
        else:
            judgements.append(_compared(levels, series, sources, level, limit_of(series)))
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


def _without_unjudged(levels: Mapping[Series, Level]) -> dict[Series, Level]:
    return {series: level for series, level in levels.items() if series.metric not in UNJUDGED}


def _fault(level: Level) -> str:
    """Return why a level cannot be compared; empty if it can."""
    if level.status is not Status.OK:
        return level.reason or f"{level.status} without a reason"
    values = list(chain.from_iterable(level.replicas))
    if not values or not all(level.replicas):
        return "a replica holds no values" if level.replicas else "no replica holds values"
    return "" if all(map(isfinite, values)) else "a value is not a finite number"


def _baseline_sources(
    baseline: Container[Series], usable: Mapping[Series, Level], candidate: Iterable[Series]
) -> dict[Series, tuple[Series, ...]]:
    """Return, for each series of the candidate, the series of the baseline that it is compared with.

    A series is compared with the same series, or else with the usable series of all other devices of its model, the
    latest run first. A series that has neither is absent.
    """
    sources: dict[Series, tuple[Series, ...]] = {series: (series,) for series in candidate if series in baseline}
    unknown = [series for series in candidate if series not in sources]
    by_model: dict[tuple[Case, str, str, CacheState], list[Series]] = {}
    for series in usable if unknown else ():
        by_model.setdefault(_of_model(series), []).append(series)
    for series in unknown:
        if others := by_model.get(_of_model(series)):
            sources[series] = tuple(
                sorted(others, key=lambda source: (usable[source].run, source.device), reverse=True)
            )
    return sources


def _of_model(series: Series) -> tuple[Case, str, str, CacheState]:
    return series.case, series.device_model, series.metric, series.cache


def _compared(
    levels: "_Levels", series: Series, baselines: Mapping[Series, Level], after: Level, threshold: float
) -> Judgement:
    """Compare a series with its baseline: its own level, or the levels of other devices of its model."""
    source, before = next(iter(baselines.items()))
    values = [part for level in (after, *baselines.values()) for part in chain(level.replicas, level.further)]
    if min(map(min, values)) <= 0:
        if min(map(min, values)) == max(map(max, values)) == 0:
            return levels.row(series, Verdict.UNCHANGED, BOTH_ZERO, before, after)
        return levels.row(series, Verdict.INCONCLUSIVE, NO_RATIO, before, after)
    note, further = "", before.further
    if len(baselines) > 1:
        devices = [level.replicas for level in baselines.values()]
        comparison = compare_with_devices(devices, after.replicas, threshold=threshold)
        note = f"; compared with {len(baselines)} other GPUs of {source.device_model}, whose spread is in the interval"
    else:
        sides = levels.side(before), levels.side(after)
        comparison = compare_sides(*sides, further=further, threshold=threshold)
        if drift := _drift(comparison, *sides, further, threshold):
            comparison, further = drift, further[: FIRST_RUNS - 1]
            note = f"; compared with the baseline's first {FIRST_RUNS} runs, because the later ones drifted too"
        if source.device != series.device:
            note += (
                f"; compared with another {source.device_model} ({source.device}); the ratio covers their difference"
            )
    return replace(
        levels.row(series, comparison.verdict, comparison.reason + note, before, after),
        ratio=comparison.ratio,
        low=comparison.low,
        high=comparison.high,
        baseline_s=levels.center(after) / comparison.ratio
        if further
        else levels.center(before)
        if len(baselines) == 1
        else center_of(np.array([levels.center(level) for level in baselines.values()])),
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


def _why_new(series: Series, fault: str, versions: Mapping[Hashable, int]) -> str:
    """Return the reason of a new series.

    Args:
        series: the series.
        fault: why its level in the baseline cannot be compared; empty if the baseline does not have the series.
        versions: the newest version of each case in the baseline.
    """
    if fault:
        return f"the baseline has no level: {fault}"
    if (version := versions.get(_any_version(series))) is not None:
        return f"version {series.case.version} of a case whose history ended with version {version}"
    return "the baseline does not have it"


def _absent(
    usable: Mapping[Series, Level],
    candidate: Mapping[Series, Level],
    sources: Mapping[Series, Sequence[Series]],
) -> dict[Series, Level]:
    """Return the baseline's correct results that the candidate does not have.

    Left out are:

    - results of an older version of a case,
    - metrics of a broken or skipped case,
    - results of another device, if they stand in for the missing baseline of a candidate's device.
    """
    absent = {series: level for series, level in usable.items() if series not in candidate}
    if not absent:
        return absent
    present = {_any_version(series) for series in candidate}
    not_ok = {_any_version(_time_of(series)) for series, level in candidate.items() if level.status is not Status.OK}
    devices = {series.device for series in candidate}
    stand_ins = {source for used in sources.values() for source in used if source.device not in devices}
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
    """

    faults: Mapping[int, str]
    centers: Mapping[int, float]
    sides: Mapping[int, Side | None]

    @classmethod
    def of(cls, every: Sequence[Level]) -> "_Levels":
        """Read levels, which must live as long as the object."""
        faults = {id(level): _fault(level) for level in every}
        usable = [level for level in every if not faults[id(level)]]
        sides, centers = sides_of([level.replicas for level in usable])
        ids = [id(level) for level in usable]
        return cls(faults, dict(zip(ids, centers, strict=True)), dict(zip(ids, sides, strict=True)))

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
        self, series: Series, verdict: Verdict, reason: str, before: Level | None, after: Level | None
    ) -> Judgement:
        """Return a judgement without a ratio; ``before`` is the baseline's level and ``after`` the candidate's."""
        return Judgement(
            series,
            verdict,
            reason,
            baseline_run=before.run if before else None,
            candidate_run=after.run if after else None,
            baseline_s=self.centers.get(id(before)),
            candidate_s=self.centers.get(id(after)),
            baseline_replicas=len(before.replicas) + sum(map(len, before.further)) if before else None,
            baseline_runs=1 + len(before.further) if before else 1,
            candidate_replicas=len(after.replicas) if after else None,
        )


def _sort_key(judgement: Judgement) -> tuple[int, float, str, str, str, str]:
    series, verdict = judgement.series, judgement.verdict
    steepness = -(judgement.ratio or 0.0) if verdict is Verdict.REGRESSION else 0.0
    return ORDER.index(verdict), steepness, series.case.id, series.device, series.metric, series.cache


# --- thresholds ------------------------------------------------------------------------------------------------------

THRESHOLDS: Mapping[str, float] = MappingProxyType(
    {
        # Medians of kernels over 50 µs differ by about 0.1 % from process to process. Shorter kernels differ by more,
        # and are then inconclusive: alpha limits false changes, whatever the threshold.
        "cuda": 0.01,
        # The CPU device's times are rough: other processes share its cores and caches.
        "cpu": 0.50,
        # A program on a host, which another tool timed: the times of its processes often differ by some per cent.
        "host": 0.05,
        # The fake device stands in for a GPU.
        "fake": 0.01,
    }
)
"""The threshold by kind of device, as a fraction of the baseline."""

ERROR_THRESHOLD = 1.0
"""The threshold of errors on every device: twice the error is one bit of accuracy lost. Smaller changes come from the
order of a sum, and beyond the tolerance the result is wrong in any case."""


@dataclass(frozen=True, slots=True)
class ThresholdRule:
    """The smallest relevant change of some cases and metrics.

    Attributes:
        takes: returns whether the rule applies to a case.
        metric: a glob of metrics; ``*`` is all but the maximum error, which has to be named.
        change: the change, as a fraction of the baseline.
    """

    takes: Callable[[Case], bool]
    metric: str
    change: float

    def applies_to(self, case: Case, metric: str) -> bool:
        """Return True if the rule applies to a metric of a case."""
        named = fnmatchcase(metric, self.metric) and (metric != MAX_ERROR or self.metric != "*")
        return named and self.takes(case)


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The configured rules and a command's own threshold. Of the rules that apply to a metric, the last one decides.

    Attributes:
        rules: in their order.
        override: a command's own threshold for all that it judges, as a fraction; it comes before the rules.
    """

    rules: tuple[ThresholdRule, ...] = ()
    override: float | None = None

    def configured(self, case: Case, metric: str) -> float | None:
        """Return the smallest relevant change that the rules set for a metric of a case; None if no rule applies."""
        return next((rule.change for rule in reversed(self.rules) if rule.applies_to(case, metric)), None)


ThresholdOption = Thresholds | float | None
"""What a user chose: the rules and perhaps a command's threshold; that threshold alone; or None for the defaults."""


def without_override(option: ThresholdOption) -> Thresholds:
    """Return the configured rules alone, without the threshold of the current command."""
    return Thresholds(option.rules) if isinstance(option, Thresholds) else Thresholds()


def threshold_of(case: Case, metric: str, device_kind: str, option: ThresholdOption) -> float:
    """Return the smallest relevant change of a case's metric on a kind of device, as a fraction.

    The command's own threshold comes first, then the rules, then the default of the kind of device. A command's
    threshold does not apply to errors. For an error, only a rule that names the error counts, else ``ERROR_THRESHOLD``.
    """
    thresholds = option if isinstance(option, Thresholds) else Thresholds(override=option)
    if thresholds.override is not None and metric != MAX_ERROR:
        return thresholds.override
    configured = thresholds.configured(case, metric)
    if configured is not None:
        return configured
    return ERROR_THRESHOLD if metric == MAX_ERROR else default_threshold(device_kind)


def default_threshold(device_kind: str) -> float:
    """Return the threshold of a kind of device (``DeviceInfo.kind``) unless a user sets another.

    Raises:
        ValueError: perfsvc has no device of this kind.
    """
    if device_kind not in THRESHOLDS:
        raise ValueError(f"no device is of kind {device_kind!r}: the kinds are {', '.join(sorted(THRESHOLDS))}")
    return THRESHOLDS[device_kind]
