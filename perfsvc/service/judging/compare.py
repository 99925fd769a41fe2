"""Judging one run against another, or against the baseline of each series."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from perfsvc import judge
from perfsvc.model import MAX_ERROR, Cause, Judgement, Series, Status, Verdict
from perfsvc.report.rows import ComparedRun
from perfsvc.service.judging import policy
from perfsvc.service.judging.clocks import cycles_of
from perfsvc.service.judging.sides import SidesOf
from perfsvc.service.revisions import BASELINE, resolve
from perfsvc.store import Store


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two runs (no base run where each series has its own baseline) and the verdicts between them."""

    base: ComparedRun | None
    new: ComparedRun
    judgements: tuple[Judgement, ...]

    def exit_code(self, *, strict: bool) -> int:
        """The command's exit code: a case that is broken in the new run counts as failed."""
        failed = any(judgement.verdict is Verdict.BROKEN for judgement in self.judgements)
        return judge.exit_code(self.judgements, failed=failed, strict=strict)


def compare(
    store: Store, base: str, new: str, *, folder: Path, threshold: judge.Asked, against: str = BASELINE
) -> Comparison:
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
        fixed = policy.against(store, against, candidate.run, folder)
        return Comparison(None, candidate, tuple(judge_run(store, candidate.run, threshold=threshold, against=fixed)))
    baseline = _compared(base, store, folder)
    limits = _thresholds(store, threshold)
    judgements = judge.verdicts(store.levels(baseline.run), store.levels(candidate.run), threshold=limits)
    return Comparison(baseline, candidate, tuple(_with_causes(store, judgements, limits, SidesOf(store))))


def judge_run(
    store: Store,
    run: int,
    *,
    threshold: judge.Asked,
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


def judge_quiet(store: Store, run: int, series: Iterable[Series], *, threshold: judge.Asked = None) -> list[Judgement]:
    """What a run says of some series against their baselines, also of metrics that have a row only where they moved.

    By the rules, or each kind of device's default threshold, whatever a command was asked for.
    """
    candidate = store.levels_of(dict.fromkeys(series, run))
    if not candidate:
        return []
    baselines = store.levels_of(store.baselines(candidate, run))
    return judge.verdicts(baselines, candidate, threshold=_thresholds(store, judge.lasting(threshold)), every=True)


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


def _thresholds(store: Store, threshold: judge.Asked) -> Callable[[Series], float]:
    devices = store.devices()

    def of(series: Series) -> float:
        return judge.threshold_of(series.case, series.metric, devices[series.device].kind, threshold)

    return of
