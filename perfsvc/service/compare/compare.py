"""Compare a run with another run, or with the baseline of each series."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from perfsvc import judge
from perfsvc.errors import UsageError
from perfsvc.model import (
    MAX_ERROR,
    TIME,
    Case,
    Judgement,
    Level,
    Series,
    Status,
    Verdict,
)
from perfsvc.report.review import Review, comparison_review
from perfsvc.report.rows import ComparedRun
from perfsvc.selection import Selection, parse
from perfsvc.service.compare.confirmations import with_answers_of_other_runs, with_confirmations
from perfsvc.service.compare.nights import further_runs, with_nights
from perfsvc.service.compare.sides import settled_by_code, sides_of
from perfsvc.service.revisions import BASELINE, choose, require_judged, resolve
from perfsvc.store import RunRow, Store

if TYPE_CHECKING:
    from perfsvc.config import Settings

ALL = Selection()
"""The selection of all cases."""

CYCLES: Final = "sm_cycles"
"""The auxiliary metric of a time that counts clock cycles."""


@dataclass(frozen=True, slots=True)
class RunComparison:
    """The verdicts on the run ``new`` against the run ``base``, which is None if each series has its own baseline.

    Attributes:
        over_budget: the series that the new run lacks because its budget was used up; they do not count as missing.
    """

    base: ComparedRun | None
    new: ComparedRun
    judgements: tuple[Judgement, ...]
    over_budget: tuple[Series, ...] = ()

    def review(self, *, passed: bool) -> Review:
        """Return what a pull request shows of the comparison; ``passed`` is whether the command exits with 0."""
        return comparison_review(self.base, self.new, self.judgements, self.over_budget, passed=passed)

    def exit_code(self, *, strict: bool) -> int:
        """Return the exit code of the command."""
        return judge.exit_code(self.judgements, failed=False, strict=strict)


def compare(
    store: Store,
    base: str,
    new: str,
    *,
    folder: Path,
    threshold: judge.ThresholdOption,
    against: str = BASELINE,
    selection: Selection = ALL,
    devices: Collection[str] = (),
) -> RunComparison:
    """Judge the run ``new`` against the run ``base``, each named by a number, a label, a git revision or the like.

    If a series was measured again in A/B pairs, the series gets the cause that the pairs showed. The pairs may have
    been measured for other runs of the same two binaries.

    Args:
        store: the database.
        base: the run to compare with, or ``@baseline``.
        new: the run to judge.
        folder: the repository of git revisions.
        threshold: the smallest relevant change as a fraction, or rules; None for the default of each kind of device.
        against: if ``base`` is ``@baseline``: the run with which series without a pin are compared; ``@baseline`` for
            each series' own baseline.
        selection: the cases to compare; other cases are neither shown nor reported as missing.
        devices: the UUIDs or models of the devices to compare; empty for all.

    Raises:
        NotMeasuredError: there is no such run.
        UsageError: a name is not understood, both names mean the same run, or nothing is selected.
    """
    candidate, why_new = choose(new, store, folder)
    require_judged(store, candidate.id)
    thresholds = threshold_of_series(store, threshold)
    if base == BASELINE:
        run = run_to_compare_with(store, against, candidate.id, folder)
        judgements = judge_run(store, candidate.id, threshold=threshold, against=run)
        baseline = None
    else:
        chosen, why_base = choose(base, store, folder, like=candidate)
        baseline = _compared_run(base, chosen, why_base)
        if chosen.id == candidate.id:
            cure = f"name two runs (perfsvc runs), or compare with the baselines: perfsvc compare {BASELINE} {new}"
            raise UsageError(f"{base} and {new} are the same run, {chosen.id}", cure=cure)
        require_judged(store, chosen.id)
        levels: Mapping[int, Mapping[Series, Level]] = store.series.levels_of_runs([chosen.id, candidate.id])
        if excluded := {exclusion.case for exclusion in store.exclusions.of_runs([chosen.id, candidate.id])}:
            levels = {
                run: {series: level for series, level in held.items() if series.case.id not in excluded}
                for run, held in levels.items()
            }
        verdicts = judge.verdicts(levels[chosen.id], levels[candidate.id], threshold=thresholds)
        judgements = _with_causes(store, verdicts, thresholds)
    judgements = with_answers_of_other_runs(store, judgements, thresholds)
    over_budget = _over_budget(store, candidate, judgements)
    selected = selected_of(judgements, selection, devices)
    if judgements and not selected:
        raise UsageError("neither run has a case that is selected", cure="see what a run has: perfsvc report")
    skipped = [row.series for row in selected if row.verdict is Verdict.MISSING and row.series in over_budget]
    return RunComparison(
        baseline,
        _compared_run(new, candidate, why_new),
        tuple(row for row in selected if row.verdict is not Verdict.MISSING or row.series not in over_budget),
        tuple(skipped),
    )


def selected_of(judgements: Sequence[Judgement], selection: Selection, devices: Collection[str]) -> list[Judgement]:
    """Return the judgements on the selected cases and on the devices with these UUIDs or models; on all if empty."""
    wanted = selection.filter(judgement.series.case for judgement in judgements)
    return [
        row
        for row in judgements
        if row.series.case in wanted and (not devices or {row.series.device, row.series.device_model} & set(devices))
    ]


def _compared_run(text: str, run: RunRow, why: str) -> ComparedRun:
    return ComparedRun(text, run.id, run.provenance.label, run.provenance.commit, run.provenance.dirty, why)


def _over_budget(store: Store, run: RunRow, judgements: Iterable[Judgement]) -> set[Series]:
    """Return the missing series that a run had no time left for, on their own device or on a GPU of the same model."""
    models = {uuid: device.model for uuid, device in store.devices.all().items()}
    skipped = {(uuid, case, cache) for uuid, case, cache in store.runs.over_budget(run.id)}
    on_models = {(models.get(uuid, ""), case, cache) for uuid, case, cache in skipped}
    return {
        series
        for series in (judgement.series for judgement in judgements if judgement.verdict is Verdict.MISSING)
        if (series.device, series.case, series.cache) in skipped
        or (series.device not in run.devices and (series.device_model, series.case, series.cache) in on_models)
    }


def judge_run(
    store: Store, run: int, *, threshold: judge.ThresholdOption, against: int | None = None
) -> list[Judgement]:
    """Judge every series of a run against its own baseline, and report the series that the run misses.

    The baseline of a series is its pin; else its level in the run ``against``; else its last accepted level; else the
    levels of other devices of the same model. A pin and an accepted level get the further runs of the same code
    (``with_nights``); the run ``against`` stands alone, because a person named it.

    A series is missing if the run lacks the series, and the previous run of the same scope (suite and selection) on the
    device had it. A removed case is therefore reported as missing once. A run with a smaller selection has another
    scope, so it misses nothing. A case over budget is not missing either.
    """
    candidate = store.series.levels(run)
    measured = [series for series, level in candidate.items() if level.status is not Status.SKIPPED]
    baselines = store.series.levels_of(store.baselines.get(measured, run))
    alone: dict[Series, Level] = {}
    if against is not None:
        pinned = {pin.series for pin in store.baselines.pins()}
        alone = {
            series: level
            for series, level in store.series.levels(against).items()
            if series in candidate
            and candidate[series].status is not Status.SKIPPED
            and level.status is Status.OK
            and series not in pinned
            and series.metric != MAX_ERROR
        }
    baselines = with_nights(store, baselines, run, candidate.keys() - alone.keys()) | alone
    thresholds = threshold_of_series(store, threshold)
    expected = {series: earlier for series, earlier in store.baselines.expected(run).items() if series not in baselines}
    judgements = judge.verdicts(store.series.levels_of(expected) | baselines, candidate, threshold=thresholds)
    return _with_causes(store, judgements, thresholds)


def judge_series(
    store: Store, run: int, series: Iterable[Series], *, threshold: judge.ThresholdOption = None
) -> list[Judgement]:
    """Judge some series of a run against their baselines. Auxiliary metrics are judged even if they did not move.

    The rules of the settings or the default thresholds decide; a threshold given to the command is ignored.
    """
    candidate = store.series.levels_of(dict.fromkeys(series, run))
    baselines = with_nights(store, store.series.levels_of(store.baselines.get(candidate, run)), run, candidate.keys())
    thresholds = threshold_of_series(store, judge.without_override(threshold))
    return settled_by_code(store, judge.verdicts(baselines, candidate, threshold=thresholds, every=True), thresholds)


def judge_against(
    store: Store,
    run: int,
    baselines: Mapping[Series, int],
    *,
    threshold: judge.ThresholdOption = None,
    nights_before: int | None = None,
) -> list[Judgement]:
    """Judge series of a run, each against its level in the run that ``baselines`` names for it.

    With ``nights_before``, the level gets the further runs of the same code before this run (``with_nights``), but not
    for the steps of a finding: the first nights of the next step would be among them. Auxiliary metrics are judged too.
    """
    candidate = store.series.levels_of(dict.fromkeys(baselines, run))
    levels = store.series.levels_of({series: baselines[series] for series in candidate})
    if nights_before is not None:
        levels = with_nights(store, levels, nights_before, candidate.keys())
    thresholds = threshold_of_series(store, threshold)
    return settled_by_code(store, judge.verdicts(levels, candidate, threshold=thresholds, every=True), thresholds)


# --- what the settings say -------------------------------------------------------------------------------------------


def thresholds(settings: "Settings", asked: float | None = None) -> judge.Thresholds:
    """Return the threshold rules of the settings; ``asked``, from a command, takes precedence over them."""
    rules = (judge.ThresholdRule(parse(rule.cases).matches, rule.metric, rule.change) for rule in settings.thresholds)
    return judge.Thresholds(tuple(rules), asked)


def unmatched_rules(asked: judge.ThresholdOption, cases: Collection[Case]) -> list[str]:
    """Return the threshold rules that match no case of a suite, as ``thresholds[2]``: they are probably mistyped."""
    rules = enumerate(judge.without_override(asked).rules, start=1)
    return [f"thresholds[{number}]" for number, rule in rules if not any(map(rule.takes, cases))]


def run_to_compare_with(store: Store, text: str, run: int, folder: Path) -> int | None:
    """Return the run that all series of a run are compared with; None if each series has its own baseline.

    Args:
        store: the database.
        text: ``@baseline``; else the number, the label or a git revision of a run.
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
    require_judged(store, number)
    return number


def threshold_of_series(store: Store, threshold: judge.ThresholdOption) -> Callable[[Series], float]:
    """Return a function that returns the smallest relevant change of a series, as a fraction."""
    devices = store.devices.all()
    has_rules = bool(judge.without_override(threshold).rules)
    known: dict[tuple[str, str], float] = {}

    def threshold_of(series: Series) -> float:
        key = series.device, series.metric
        if has_rules or key not in known:  # without rules, all cases have the same threshold
            known[key] = judge.threshold_of(series.case, series.metric, devices[series.device].kind, threshold)
        return known[key]

    return threshold_of


# --- why a series moved ----------------------------------------------------------------------------------------------


def _with_causes(
    store: Store, judgements: Sequence[Judgement], threshold_of: Callable[[Series], float]
) -> list[Judgement]:
    """Return all judgements, settled; add the cause, and the result of a confirmation, to each that moved."""
    settled = settled_by_code(store, judgements, threshold_of)
    if not any(judgement.verdict in judge.MOVES for judgement in settled):
        return settled
    caused = judge.with_causes(settled, sides_of(store, settled), cycles_of(store, settled))
    return with_confirmations(store, caused, threshold_of)


def cycles_of(store: Store, judgements: Iterable[Judgement]) -> dict[Series, judge.Comparison]:
    """Compare the clock cycles of each case whose time moved. If the cycles did not move, the clock did.

    A series is absent if one of the two runs has no cycles for it: the device counts none, or the baseline's level
    comes from another device.
    """
    moved = [
        judgement for judgement in judgements if judgement.verdict in judge.MOVES and judgement.series.metric == TIME
    ]
    compared = {
        judgement.series: (judgement.baseline_run, judgement.candidate_run)
        for judgement in moved
        if judgement.baseline_run is not None and judgement.candidate_run is not None
    }
    runs: dict[Series, list[int]] = {}
    for candidate in {after for _, after in compared.values()}:
        own = {series: before for series, (before, after) in compared.items() if after == candidate}
        further = further_runs(store, store.series.levels_of(own), candidate, own)
        runs |= {series: [before, candidate, *further.get(series, ())] for series, before in own.items()}
    counted = store.baselines.values_of_metric(CYCLES, runs)
    compared_cycles: dict[Series, judge.Comparison] = {}
    for series, values in counted.items():
        before, after = (values.get(run, ()) for run in compared[series])
        if before and after and min(*before, *after) > 0:
            more = tuple(values[run] for run in runs[series][2:] if run in values)
            level = Level(compared[series][0], Status.OK, medians=before, further=more)
            compared_cycles[series] = judge.compare_levels(level, Level(compared[series][1], Status.OK, medians=after))
    return compared_cycles
