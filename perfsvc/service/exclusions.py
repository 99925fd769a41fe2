"""Exclude bad data from judging, include it again, delete runs (``perfsvc runs``), and pin baselines."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from perfsvc import judge
from perfsvc.errors import NotMeasuredError, UsageError
from perfsvc.model import MAX_ERROR, TIME, UNJUDGED, Case, FindingUpdates, Judgement, RunState, Series, Status, Verdict
from perfsvc.report import wording
from perfsvc.selection import Selection
from perfsvc.service.compare.compare import judge_run
from perfsvc.service.findings.actions import user_name
from perfsvc.service.revisions import require_judged
from perfsvc.store import Store

_NEVER_PINNED = UNJUDGED | {MAX_ERROR}
"""Metrics that have no pins."""


def pin(store: Store, run: int, selection: Selection, *, comment: str) -> int:
    """Pin a run as the baseline of each selected series with a correct result in the run; return the number of pins."""
    require_judged(store, run)
    levels = store.series.levels(run)
    correct = [
        series for series, level in levels.items() if level.status is Status.OK and series.metric not in _NEVER_PINNED
    ]
    selected = selection.filter(series.case for series in correct)
    chosen = [series for series in correct if series.case in selected]
    if not chosen:
        raise UsageError(
            f"run {run} has no correct result of a selected case",
            cure=f"see what the run measured: perfsvc report {run} --summary",
        )
    store.baselines.pin(run, chosen, by=user_name(), comment=comment)
    return len(chosen)


def unpin(store: Store, selection: Selection) -> int:
    """Remove the pins of the selected series; return how many pins were removed."""
    pinned = [pin.series for pin in store.baselines.pins()]
    selected = selection.filter(series.case for series in pinned)
    return store.baselines.unpin([series for series in pinned if series.case in selected])


@dataclass(frozen=True, slots=True)
class Changed:
    """What excluding, including or deleting data changed.

    Attributes:
        cases: the ids of the cases; empty for the whole run.
        findings: the findings that the change resolved or reopened.
        judged_again: the later runs that got new verdicts, because the change gave some of their series new baselines.
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
        UsageError: the data cannot be excluded, for example because it is excluded already; or the reason is empty.
    """
    if not reason.strip():
        raise UsageError("an exclusion needs a reason", cure="say why the data is bad: --reason 'the GPU was shared'")
    chosen = _chosen(store, run, cases)
    with _judging_again(store, run, threshold) as changed:
        findings = store.exclusions.exclude(run, chosen, reason=reason.strip(), by=user_name())
    return Changed(run, _names(chosen), findings, tuple(changed))


def include(store: Store, run: int, cases: Sequence[str], *, threshold: judge.ThresholdOption = None) -> Changed:
    """Include a run, or its cases that match a glob, in judging again, and judge the affected later runs again.

    Raises ``NotMeasuredError`` for an unknown run or case, and ``UsageError`` if nothing of it is excluded.
    """
    chosen = _chosen(store, run, cases)
    with _judging_again(store, run, threshold) as changed:
        findings = store.exclusions.include(run, chosen, by=user_name())
    return Changed(run, _names(chosen), findings, tuple(changed))


def delete(store: Store, run: int, *, reason: str, threshold: judge.ThresholdOption = None) -> Changed:
    """Delete a run with everything that belongs to it, and judge the affected later runs again."""
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
            listed = wording.some(sorted(case.id for case in measured))
            raise NotMeasuredError(f"run {run} did not measure {text}", cure=f"it measured {listed or 'nothing'}")
        chosen |= named
    return chosen


@contextmanager
def _judging_again(store: Store, run: int, threshold: judge.ThresholdOption) -> Iterator[list[int]]:
    """After the block, judge the run and each later one again if the block changed a baseline that its verdicts used.

    Yields a list. After the block, this list holds the numbers of the runs that were judged again.
    """
    later = [
        row.id
        for row in reversed(store.runs.list())
        if row.id >= run and row.state is not RunState.RUNNING and (row.id == run or not row.why_excluded)
    ]
    before = {number: _compared_with(store, number) for number in later}
    changed: list[int] = []
    yield changed
    for number in later:
        stored = {judgement.series: judgement for judgement in store.verdicts.of_run(number)}
        after = _compared_with(store, number)
        rebased = {
            series
            for series in before[number] | after
            if before[number].get(series) != after.get(series)
            and (number == run or _was_used(stored, series, before[number]))
        }
        if not stored or not rebased:
            continue
        fresh = {judgement.series: judgement for judgement in judge_run(store, number, threshold=threshold)}
        judgements = []
        for series in stored | fresh:
            source = fresh if _has_new_baseline(series, rebased) else stored
            if series in source:
                judgements.append(source[series])
        if judgements != list(stored.values()):
            store.verdicts.put(number, judgements)
            changed.append(number)


def _compared_with(store: Store, run: int) -> dict[Series, tuple[int, ...]]:
    """Return the baseline of each series of a run, and of each series that the run should have but lacks.

    A baseline is its run, and then all runs that may belong to it.
    """
    series = [judgement.series for judgement in store.verdicts.of_run(run) if judgement.verdict is not Verdict.MISSING]
    baselines = store.baselines.get(series, run)
    nights = store.baselines.nights(baselines, run)
    runs = {series: (number,) for series, number in (store.baselines.expected(run) | baselines).items()}
    return {series: (*number, *nights.get(series, ())) for series, number in runs.items()}


def _was_used(stored: Mapping[Series, Judgement], series: Series, baselines: Mapping[Series, tuple[int, ...]]) -> bool:
    """Return whether the stored verdict of a series used its baseline in ``baselines``; True without a verdict.

    A verdict used another run if the user named another run to compare with.
    """
    return series not in stored or stored[series].baseline_run == next(iter(baselines.get(series, ())), None)


def _has_new_baseline(series: Series, rebased: Collection[Series]) -> bool:
    """Return whether a series, or the time of the same case, is among the series that got a new baseline."""
    return series in rebased or replace(series, metric=TIME) in rebased
