"""Exclude bad data from judging, include it again, and delete runs: ``perfsvc runs``."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from perfsvc import judge
from perfsvc.errors import NotMeasuredError, UsageError
from perfsvc.model import TIME, Case, FindingUpdates, Judgement, RunState, Series, Verdict
from perfsvc.report import wording
from perfsvc.service.compare.compare import judge_run
from perfsvc.service.findings.actions import user_name
from perfsvc.store import Store
from perfsvc.suite import Selection


@dataclass(frozen=True, slots=True)
class Changed:
    """What excluding, including or deleting data changed.

    Attributes:
        cases: the ids of the cases; empty for the whole run.
        findings: the findings that it resolved or reopened.
        judged_again: the later runs that got new verdicts, because they were compared with the data before, or are now.
        deleted_findings: the findings that were deleted with their only run.
    """

    run: int
    cases: tuple[str, ...] = ()
    findings: FindingUpdates = field(default_factory=FindingUpdates)
    judged_again: tuple[int, ...] = ()
    deleted_findings: tuple[int, ...] = ()


def exclude(
    store: Store, run: int, cases: Sequence[str], *, reason: str, threshold: judge.ThresholdOption = None
) -> Changed:
    """Exclude a run, or its cases that match a glob, from judging, and judge the affected later runs again.

    Args:
        store: the database.
        run: the run.
        cases: ids or globs of cases; none for the whole run.
        reason: why the data is bad.
        threshold: the thresholds of the settings, for judging again.

    Raises:
        NotMeasuredError: there is no such run, or the run has no such case.
        UsageError: the data cannot be excluded (``ExclusionStore.exclude``), or the reason is empty.
    """
    if not reason.strip():
        raise UsageError("an exclusion needs a reason", cure="say why the data is bad: --reason 'the GPU was shared'")
    chosen = _chosen(store, run, cases)
    with _judging_again(store, run, threshold) as changed:
        findings = store.exclusions.exclude(run, chosen, reason=reason.strip(), by=user_name())
    return Changed(run, _names(chosen), findings, tuple(changed))


def include(store: Store, run: int, cases: Sequence[str], *, threshold: judge.ThresholdOption = None) -> Changed:
    """Include a run, or its cases that match a glob, in judging again; otherwise like ``exclude``."""
    chosen = _chosen(store, run, cases)
    with _judging_again(store, run, threshold) as changed:
        findings = store.exclusions.include(run, chosen, by=user_name())
    return Changed(run, _names(chosen), findings, tuple(changed))


def delete(store: Store, run: int, *, reason: str, threshold: judge.ThresholdOption = None) -> Changed:
    """Delete a run with everything that belongs to it (``ExclusionStore.delete``)."""
    with _judging_again(store, run, threshold) as changed:
        deleted = store.exclusions.delete(run, reason=reason.strip(), by=user_name())
    return Changed(run, judged_again=tuple(changed), deleted_findings=deleted)


def _names(cases: Collection[Case] | None) -> tuple[str, ...]:
    return tuple(sorted(case.id for case in cases or ()))


def _chosen(store: Store, run: int, cases: Sequence[str]) -> set[Case] | None:
    """Return the cases of a run that match ids or globs; None if none are given, which means the whole run."""
    if not cases:
        return None
    measured = store.exclusions.cases(run)
    chosen: set[Case] = set()
    for text in cases:
        named = {case for case in measured if case.id == text} or Selection((text,)).filter(measured)
        if not named:
            known = wording.some(sorted(case.id for case in measured))
            raise NotMeasuredError(f"run {run} did not measure {text}", cure=f"it measured {known or 'nothing'}")
        chosen |= named
    return chosen


@contextmanager
def _judging_again(store: Store, run: int, threshold: judge.ThresholdOption) -> Iterator[list[int]]:
    """Judge again, oldest first, the later runs whose baselines the block changes; yield a list for their numbers.

    Without this, a level that an excluded run set would live on in later verdicts.
    """
    later = [
        row.id
        for row in reversed(store.runs.list())
        if row.id > run and row.state is not RunState.RUNNING and not row.why_excluded
    ]
    before = {number: _compared_with(store, number) for number in later}
    changed: list[int] = []
    yield changed
    for number in later:
        stored = {judgement.series: judgement for judgement in store.verdicts.of_run(number)}
        after = _compared_with(store, number)
        moved = {
            series
            for series in before[number] | after
            if before[number].get(series) != after.get(series) and _was_used(stored, series, before[number])
        }
        if not stored or not moved:
            continue
        fresh = {judgement.series: judgement for judgement in judge_run(store, number, threshold=threshold)}
        judgements = [
            judgement
            for series in stored | fresh
            if (judgement := (fresh if _is_one_of(series, moved) else stored).get(series))
        ]
        if judgements != list(stored.values()):
            store.verdicts.put(number, judgements)
            changed.append(number)


def _compared_with(store: Store, run: int) -> dict[Series, int]:
    """Return the run that each series of a run is compared with, also for series that the run should have."""
    series = [judgement.series for judgement in store.verdicts.of_run(run) if judgement.verdict is not Verdict.MISSING]
    return store.baselines.expected(run) | store.baselines.get(series, run)


def _was_used(stored: Mapping[Series, Judgement], series: Series, baselines: Mapping[Series, int]) -> bool:
    """Return whether a stored verdict on a series used its baseline, and not a pin or a run that a person named."""
    return series not in stored or stored[series].baseline_run == baselines.get(series)


def _is_one_of(series: Series, moved: Collection[Series]) -> bool:
    """Return whether a series, or the time that the series explains, has another baseline now."""
    return series in moved or replace(series, metric=TIME) in moved
