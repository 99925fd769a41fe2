"""Compare a run with another run, or with the baseline of each series."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from perfsvc import judge
from perfsvc.config import Settings
from perfsvc.errors import UsageError
from perfsvc.judge import Comparison, ThresholdOption, ThresholdRule, Thresholds, without_override
from perfsvc.model import MAX_ERROR, TIME, Case, Cause, Judgement, Level, Series, Status, Verdict
from perfsvc.report.rows import ComparedRun
from perfsvc.service.compare.code import SidesOf
from perfsvc.service.revisions import BASELINE, resolve, run_of
from perfsvc.store import Store
from perfsvc.suite.selection import parse


def thresholds(settings: Settings, asked: float | None = None) -> Thresholds:
    """The rules of the settings, and before them what a command is asked for."""
    rules = (ThresholdRule(parse(rule.cases).matches, rule.metric, rule.change) for rule in settings.thresholds)
    return Thresholds(tuple(rules), asked)


def idle(asked: ThresholdOption, cases: Collection[Case]) -> list[str]:
    """The rules, as ``config show`` calls them, that take none of a suite's cases: slips of the finger."""
    rules = enumerate(without_override(asked).rules, start=1)
    return [f"thresholds[{number}]" for number, rule in rules if not any(map(rule.takes, cases))]


def baseline_run(store: Store, text: str, run: int, folder: Path) -> int | None:
    """The run that another is compared with; None where each series has its own baseline.

    Args:
        store: where the runs are.
        text: ``@baseline``, or what a run is called (``perfsvc.service.revisions``).
        run: the one to be judged.
        folder: where git revisions are looked up.

    Raises:
        NotMeasuredError: there is no such run.
        UsageError: the words are not understood, or name the run itself: its label, or its commit.
    """
    if text == BASELINE:
        return None
    found = run_of(text, store, folder)
    if found == run:
        cure = "name an earlier run in baseline.against: by its number, or by a label that no other run has"
        raise UsageError(f"run {run} is to be compared with {text!r}, which is itself", cure=cure)
    return found


CYCLES: Final = "sm_cycles"
"""The metric beside a time that counts them."""

LevelsOf = Callable[[Mapping[Series, int]], Mapping[Series, Level]]
"""The levels of some series, each in the run that is named with it."""


def cycles_of(levels_of: LevelsOf, judgements: Iterable[Judgement]) -> dict[Series, Comparison]:
    """The cycles of each case whose time moved, compared as times are: candidate over baseline.

    Absent is a case that has none on either side: on a device that counts none, or where another GPU lent the level.
    """
    moved = [one for one in judgements if one.verdict in judge.MOVES and one.series.metric == TIME]
    after = _counted(levels_of, {one.series: one.candidate_run for one in moved})
    before = _counted(levels_of, {one.series: one.baseline_run for one in moved if one.series in after})
    return {series: judge.compare(level.replicas, after[series].replicas) for series, level in before.items()}


def _counted(levels_of: LevelsOf, runs: Mapping[Series, int | None]) -> dict[Series, Level]:
    """The cycles of some times, each in a run of its own, where that counted them."""
    cycles = {replace(one, metric=CYCLES): run for one, run in runs.items() if run is not None}
    return {replace(one, metric=TIME): level for one, level in levels_of(cycles).items() if _counts(level)}


def _counts(level: Level) -> bool:
    """Whether each replica counted cycles."""
    return bool(level.replicas) and all(values and min(values) > 0 for values in level.replicas)


@dataclass(frozen=True, slots=True)
class RunComparison:
    """Two runs (no base run where each series has its own baseline) and the verdicts between them."""

    base: ComparedRun | None
    new: ComparedRun
    judgements: tuple[Judgement, ...]

    def exit_code(self, *, strict: bool) -> int:
        """The command's exit code: a case that is broken in the new run counts as failed."""
        failed = any(judgement.verdict is Verdict.BROKEN for judgement in self.judgements)
        return judge.exit_code(self.judgements, failed=failed, strict=strict)


def compare(
    store: Store, base: str, new: str, *, folder: Path, threshold: judge.ThresholdOption, against: str = BASELINE
) -> RunComparison:
    """Judges ``new`` against ``base``; both as ``perfsvc.service.revisions`` understands them.

    Args:
        store: where the runs are.
        base: the run to compare with, or ``@baseline``.
        new: the run to judge.
        folder: where git revisions are looked up.
        threshold: the smallest relevant change as a fraction, or rules; None for each kind of device's default.
        against: what ``@baseline`` means of series without a pin: a run, or ``@baseline`` for their own.
    """
    candidate = _compared(new, store, folder)
    if base == BASELINE:
        fixed = baseline_run(store, against, candidate.run, folder)
        return RunComparison(
            None, candidate, tuple(judge_run(store, candidate.run, threshold=threshold, against=fixed))
        )
    baseline = _compared(base, store, folder)
    limits = _thresholds(store, threshold)
    judgements = judge.verdicts(store.levels(baseline.run), store.levels(candidate.run), threshold=limits)
    return RunComparison(baseline, candidate, tuple(_with_causes(store, judgements, limits, SidesOf(store))))


def judge_run(
    store: Store,
    run: int,
    *,
    threshold: judge.ThresholdOption,
    against: int | None = None,
    sides_of: SidesOf | None = None,
) -> list[Judgement]:
    """Judges every series of a run against its own baseline, and names what the run should have measured and did not.

    A baseline is a pin if there is one, else the level in the run ``against`` where one is named and has the series,
    else the last accepted level, else those of other GPUs of the model (``Store.baselines``). Missing is what the run
    before had: the newest earlier one of the same scope on each device (``Store.expected``). So a case that is gone for
    good is missing once, and neither a smaller selection nor what was over budget misses anything.
    """
    candidate = store.levels(run)
    measured = [series for series, level in candidate.items() if level.status is not Status.SKIPPED]
    baselines = store.levels_of(store.baselines(measured, run))
    if against is not None:
        pinned = {pin.series for pin in store.pins()}
        right = {one: level for one, level in store.levels(against).items() if level.status is Status.OK}
        chosen = [one for one in measured if one in right and one not in pinned and one.metric != MAX_ERROR]
        baselines |= {one: right[one] for one in chosen}
    limits = _thresholds(store, threshold)
    others = {one: earlier for one, earlier in store.expected(run).items() if one not in baselines}
    judgements = judge.verdicts(store.levels_of(others) | baselines, candidate, threshold=limits)
    return _with_causes(store, judgements, limits, sides_of or SidesOf(store))


def judge_quiet(
    store: Store, run: int, series: Iterable[Series], *, threshold: judge.ThresholdOption = None
) -> list[Judgement]:
    """What a run says of some series against their baselines, also of metrics that have a row only where they moved.

    By the rules, or each kind of device's default threshold, whatever a command was asked for.
    """
    candidate = store.levels_of(dict.fromkeys(series, run))
    if not candidate:
        return []
    baselines = store.levels_of(store.baselines(candidate, run))
    return judge.verdicts(
        baselines, candidate, threshold=_thresholds(store, judge.without_override(threshold)), every=True
    )


def _with_causes(
    store: Store, judgements: Sequence[Judgement], limits: Callable[[Series], float], sides_of: SidesOf
) -> list[Judgement]:
    """The judgements with why each series moved; nothing is looked up where none did."""
    if not any(judgement.verdict in judge.MOVES for judgement in judgements):
        return list(judgements)
    caused = judge.with_causes(judgements, sides_of(judgements), cycles_of(store.levels_of, judgements))
    return _with_confirmations(store, caused, limits)


def _with_confirmations(
    store: Store, judgements: Sequence[Judgement], limits: Callable[[Series], float]
) -> list[Judgement]:
    """The judgements with what measuring both sides again has told since, of the same two runs and the same way.

    What is nothing to a person who asked for more than ``limits`` may be something here: that clears no one.
    """
    runs = {one.candidate_run for one in judgements if one.cause and one.candidate_run is not None}
    stored = [one for run in runs for one in store.confirmations(run) if one.cause is not Cause.UNCONFIRMED]
    again = [one for one in stored if one.confirmed or one.threshold <= limits(one.suspect.series)]
    known = {(one.suspect.series, one.suspect.judgement.baseline_run, one.suspect.direction): one for one in again}

    def told(judgement: Judgement) -> Judgement:
        direction = judge.MOVES.get(judgement.verdict)
        one = direction and known.get((judgement.series, judgement.baseline_run, direction))
        return replace(judgement, cause=one.cause, reason=f"{judgement.reason}; {one.reason}") if one else judgement

    return [told(judgement) for judgement in judgements]


def _compared(text: str, store: Store, folder: Path) -> ComparedRun:
    found = resolve(text, store, folder)
    root_cause = found.provenance
    return ComparedRun(text, found.id, root_cause.label, root_cause.commit, root_cause.dirty)


def _thresholds(store: Store, threshold: judge.ThresholdOption) -> Callable[[Series], float]:
    devices = store.devices()

    def of(series: Series) -> float:
        return judge.threshold_of(series.case, series.metric, devices[series.device].kind, threshold)

    return of
