"""Compare a run with another run, or with the baseline of each series.

The two runs of a judgement may share code, source, compiler and driver: that decides the cause of a change.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Final

from perfsvc import judge
from perfsvc.config import Settings
from perfsvc.elf import code_digest
from perfsvc.errors import UsageError
from perfsvc.judge import COMPARED, SameOnBothSides
from perfsvc.model import MAX_ERROR, TIME, Call, Case, Cause, Judgement, Level, ReplayRecord, Series, Status, Verdict
from perfsvc.report.rows import ComparedRun
from perfsvc.service.revisions import BASELINE, resolve
from perfsvc.store import Store
from perfsvc.suite.selection import parse

MODULES_AT_ONCE = 64
"""How many compiled modules are held in memory at once: a module may have megabytes."""

Pair = tuple[int, int]
"""The ids of a baseline's binary and a candidate's."""


def sides_of(store: Store, judgements: Iterable[Judgement]) -> dict[Series, SameOnBothSides]:
    """Return whether code, source, toolkit and device are the same in both runs of each judgement of two levels.

    A series is absent if this cannot be known: its level was borrowed from another device, its case has no binary, or
    its variant calls Python, whose packages are not stored.

    Args:
        store: the database, with the runs, all of which have ended.
        judgements: the judgements, at most one for each series.
    """
    cases = {
        series: [(run, (series.device, series.case, series.cache)) for run in (baseline_run, candidate_run)]
        for series, baseline_run, candidate_run in _compared(judgements)
    }
    built = store.binaries.of_cases({case for both in cases.values() for case in both}) if cases else {}
    sides = {}
    pairs: dict[Series, Pair] = {}
    for series, (baseline, candidate) in cases.items():
        old, new = built.get(baseline), built.get(candidate)
        if old and new and old.binary is not None and new.binary is not None:
            pairs[series] = (old.binary, new.binary)
    compared = _compare_binaries(store, set(pairs.values()))
    for series, pair in pairs.items():
        if pair in compared:
            same_code, same_source = compared[pair]
            before, after = (built[case].environment for case in cases[series])
            sides[series] = SameOnBothSides(
                code=same_code,
                source=same_source,
                toolkit=before.toolkit == after.toolkit,
                device=(before.driver, before.power_limit_w) == (after.driver, after.power_limit_w),
            )
    return sides


def _compared(judgements: Iterable[Judgement]) -> Iterable[tuple[Series, int, int]]:
    """Yield the series, baseline run and candidate run of each judgement that compares two levels."""
    for judgement in judgements:
        if judgement.verdict in COMPARED and judgement.baseline_run is not None and judgement.candidate_run is not None:
            yield judgement.series, judgement.baseline_run, judgement.candidate_run


def _compare_binaries(store: Store, pairs: AbstractSet[Pair]) -> dict[Pair, tuple[bool, bool]]:
    """For each pair, return (same code, same source). Pairs in which a binary calls Python are left out.

    The code is the same if the replay records differ in nothing but the case's name, and the modules are equal in all
    that runs (``elf.code_digest``).
    """
    binaries = store.binaries.get({binary for pair in pairs for binary in pair}) if pairs else {}
    rows = {pair: (binaries[pair[0]], binaries[pair[1]]) for pair in pairs}
    rows = {pair: both for pair, both in rows.items() if not any(_calls_python(row.record) for row in both)}
    alike = {pair: both for pair, both in rows.items() if launch_of(both[0].record) == launch_of(both[1].record)}
    other = [
        module
        for old, new in alike.values()
        if old.record.modules != new.record.modules
        for module in (*old.record.modules, *new.record.modules)
    ]
    digests = _code_digests(store, set(other))

    def same_code(old: ReplayRecord, new: ReplayRecord) -> bool:
        return old.modules == new.modules or [digests[name] for name in old.modules] == [
            digests[name] for name in new.modules
        ]

    compared = dict.fromkeys(rows, (False, False))
    for pair, (old, new) in alike.items():
        compared[pair] = (same_code(old.record, new.record), old.sources == new.sources)
    return compared


def _calls_python(record: ReplayRecord) -> bool:
    return any(isinstance(step, Call) for step in record.steps)


def launch_of(record: ReplayRecord) -> ReplayRecord:
    """Return a replay record without its modules and variant name: all but the compiled code."""
    return replace(record, case=replace(record.case, variant=""), modules=())


def _code_digests(store: Store, modules: Collection[str]) -> dict[str, str]:
    """Return the digest of the code in each module."""
    digests: dict[str, str] = {}
    names = iter(modules)
    while some := list(islice(names, MODULES_AT_ONCE)):
        digests |= {name: code_digest(code) for name, code in store.binaries.modules(some).items()}
    return digests


CYCLES: Final = "sm_cycles"
"""The auxiliary metric of a time that counts clock cycles."""


@dataclass(frozen=True, slots=True)
class RunComparison:
    """The verdicts on the run ``new`` against the run ``base``, which is None if each series has its own baseline."""

    base: ComparedRun | None
    new: ComparedRun
    judgements: tuple[Judgement, ...]

    def exit_code(self, *, strict: bool) -> int:
        """Return the exit code of the command; a case that is broken in the new run counts as failed."""
        failed = any(judgement.verdict is Verdict.BROKEN for judgement in self.judgements)
        return judge.exit_code(self.judgements, failed=failed, strict=strict)


def compare(
    store: Store, base: str, new: str, *, folder: Path, threshold: judge.ThresholdOption, against: str = BASELINE
) -> RunComparison:
    """Judge the run ``new`` against the run ``base``, both named as ``perfsvc.service.revisions`` describes.

    Args:
        store: the database.
        base: the run to compare with, or ``@baseline``.
        new: the run to judge.
        folder: the repository of git revisions.
        threshold: the smallest relevant change as a fraction, or rules; None for the default of each kind of device.
        against: with ``@baseline``, the run to compare series without a pin with, or ``@baseline`` for their own.
    """
    candidate = _compared_run(new, store, folder)
    if base == BASELINE:
        run = run_to_compare_with(store, against, candidate.run, folder)
        return RunComparison(None, candidate, tuple(judge_run(store, candidate.run, threshold=threshold, against=run)))
    baseline = _compared_run(base, store, folder)
    thresholds = _threshold_of(store, threshold)
    judgements = judge.verdicts(
        store.series.levels(baseline.run), store.series.levels(candidate.run), threshold=thresholds
    )
    return RunComparison(baseline, candidate, tuple(_with_causes(store, judgements, thresholds)))


def _compared_run(text: str, store: Store, folder: Path) -> ComparedRun:
    run = resolve(text, store, folder)
    return ComparedRun(text, run.id, run.provenance.label, run.provenance.commit, run.provenance.dirty)


def judge_run(
    store: Store, run: int, *, threshold: judge.ThresholdOption, against: int | None = None
) -> list[Judgement]:
    """Judge every series of a run against its own baseline, and report the series that the run misses.

    A baseline is the pin of the series if it has one, else its level in the run ``against``, else its last accepted
    level, else the levels of other devices of the model (``BaselineStore.get``). A series is missing if the run before
    has it: the newest earlier run of the same scope on each device (``BaselineStore.expected``). So a case that is
    removed is missing once, and a smaller selection, or a case over budget, misses nothing.
    """
    candidate = store.series.levels(run)
    measured = [series for series, level in candidate.items() if level.status is not Status.SKIPPED]
    baselines = store.series.levels_of(store.baselines.get(measured, run))
    if against is not None:
        pinned = {pin.series for pin in store.baselines.pins()}
        baselines |= {
            series: level
            for series, level in store.series.levels(against).items()
            if series in candidate
            and candidate[series].status is not Status.SKIPPED
            and level.status is Status.OK
            and series not in pinned
            and series.metric != MAX_ERROR
        }
    thresholds = _threshold_of(store, threshold)
    expected = {series: earlier for series, earlier in store.baselines.expected(run).items() if series not in baselines}
    judgements = judge.verdicts(store.series.levels_of(expected) | baselines, candidate, threshold=thresholds)
    return _with_causes(store, judgements, thresholds)


def judge_series(
    store: Store, run: int, series: Iterable[Series], *, threshold: judge.ThresholdOption = None
) -> list[Judgement]:
    """Judge some series of a run against their baselines, and also return auxiliary metrics that did not move.

    The rules of the settings or the default thresholds decide; a threshold given to the command is ignored.
    """
    candidate = store.series.levels_of(dict.fromkeys(series, run))
    if not candidate:
        return []
    baselines = store.series.levels_of(store.baselines.get(candidate, run))
    thresholds = _threshold_of(store, judge.without_override(threshold))
    return judge.verdicts(baselines, candidate, threshold=thresholds, every=True)


# --- what the settings say -------------------------------------------------------------------------------------------


def thresholds(settings: Settings, asked: float | None = None) -> judge.Thresholds:
    """Return the threshold rules of the settings; ``asked``, from a command, takes precedence over them."""
    rules = (judge.ThresholdRule(parse(rule.cases).matches, rule.metric, rule.change) for rule in settings.thresholds)
    return judge.Thresholds(tuple(rules), asked)


def unmatched_rules(asked: judge.ThresholdOption, cases: Collection[Case]) -> list[str]:
    """Return the rules that match no case of a suite, which are probably mistyped, as ``config show`` names them."""
    rules = enumerate(judge.without_override(asked).rules, start=1)
    return [f"thresholds[{number}]" for number, rule in rules if not any(map(rule.takes, cases))]


def run_to_compare_with(store: Store, text: str, run: int, folder: Path) -> int | None:
    """Return the run that all series of a run are compared with; None if each series has its own baseline.

    Args:
        store: the database.
        text: ``@baseline``, or the name of a run (``perfsvc.service.revisions``).
        run: the run to judge.
        folder: the repository of git revisions.

    Raises:
        NotMeasuredError: there is no such run.
        UsageError: the name is not understood, or names the run itself, by its label or its commit.
    """
    if text == BASELINE:
        return None
    number = resolve(text, store, folder).id
    if number == run:
        cure = "name an earlier run in baseline.against: by its number, or by a label that no other run has"
        raise UsageError(f"run {run} is to be compared with {text!r}, which is itself", cure=cure)
    return number


def _threshold_of(store: Store, threshold: judge.ThresholdOption) -> Callable[[Series], float]:
    devices = store.devices.all()

    def of(series: Series) -> float:
        return judge.threshold_of(series.case, series.metric, devices[series.device].kind, threshold)

    return of


# --- why a series moved ----------------------------------------------------------------------------------------------


def _with_causes(
    store: Store, judgements: Sequence[Judgement], threshold_of: Callable[[Series], float]
) -> list[Judgement]:
    """Return all judgements; those that moved have their cause, and the result of a confirmation if there is one."""
    if not any(judgement.verdict in judge.MOVES for judgement in judgements):
        return list(judgements)
    caused = judge.with_causes(judgements, sides_of(store, judgements), cycles_of(store, judgements))
    return _with_confirmations(store, caused, threshold_of)


def cycles_of(store: Store, judgements: Iterable[Judgement]) -> dict[Series, judge.Comparison]:
    """Compare the clock cycles of each case whose time moved, which tells whether the clock or the code is slower.

    A series is absent if either run has no cycles: its device counts none, or its level is that of another device.
    """
    moved = [
        judgement for judgement in judgements if judgement.verdict in judge.MOVES and judgement.series.metric == TIME
    ]
    after = _cycles_in(store, {judgement.series: judgement.candidate_run for judgement in moved})
    before = _cycles_in(store, {judgement.series: judgement.baseline_run for judgement in moved})
    return {
        series: judge.compare(level.replicas, after[series].replicas)
        for series, level in before.items()
        if series in after
    }


def _cycles_in(store: Store, runs: Mapping[Series, int | None]) -> dict[Series, Level]:
    """Return the cycles of each time in its run, if every replica counted them."""
    cycles = {replace(series, metric=CYCLES): run for series, run in runs.items() if run is not None}
    return {
        replace(series, metric=TIME): level
        for series, level in store.series.levels_of(cycles).items()
        if level.replicas and all(values and min(values) > 0 for values in level.replicas)
    }


def _with_confirmations(
    store: Store, judgements: Sequence[Judgement], threshold_of: Callable[[Series], float]
) -> list[Judgement]:
    """Return the judgements with the results of confirmations of the same two runs in the same direction.

    A confirmation with a threshold above the series' own clears nothing: the change may be relevant here.
    """
    runs = {judgement.candidate_run for judgement in judgements if judgement.cause}
    confirmations = [
        confirmation
        for run in runs
        if run is not None
        for confirmation in store.confirmations.of_run(run)
        if confirmation.cause is not Cause.UNCONFIRMED
        and (confirmation.confirmed or confirmation.threshold <= threshold_of(confirmation.suspect.series))
    ]
    known = {
        (confirmation.suspect.series, confirmation.suspect.judgement.baseline_run, confirmation.suspect.direction): (
            confirmation
        )
        for confirmation in confirmations
    }

    def with_confirmation(judgement: Judgement) -> Judgement:
        direction = judge.MOVES.get(judgement.verdict)
        answer = direction and known.get((judgement.series, judgement.baseline_run, direction))
        if not answer:
            return judgement
        return replace(judgement, cause=answer.cause, reason=f"{judgement.reason}; {answer.reason}")

    return [with_confirmation(judgement) for judgement in judgements]
