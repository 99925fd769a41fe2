"""Confirm before alarm: measure suspects again, the baseline's stored binary and the candidate's in A/B pairs.

A suspect of an open or acknowledged finding is measured again only if something about it is new: see
``earlier_answers``.
"""

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache, partial

from perfsvc import judge, units
from perfsvc.errors import CaseError, NoDeviceError, SuiteError, UntrustedError, UsageError
from perfsvc.judge import Comparison, SameOnBothSides
from perfsvc.measure.host.device_queue import Stopping, never
from perfsvc.measure.plan.order import Task
from perfsvc.model import (
    ENERGY,
    Cause,
    ChangeKind,
    Confirmation,
    Direction,
    FindingState,
    Judgement,
    Series,
    Suspect,
)
from perfsvc.service.compare.sides import changed_packages, sides_of
from perfsvc.service.confirm.pairs import PairResults, PairSettings, measure_pairs, replay_task, stored_case
from perfsvc.service.progress import Progress
from perfsvc.store import Store

PYTHON_BUDGET = 5
"""A case that calls Python gets this many budgets, because each of its processes imports PyTorch or the like first."""

STANDING = frozenset({FindingState.OPEN, FindingState.ACKNOWLEDGED})
"""The states of findings whose series are suspects every night until they recover."""

REFUSED = "refused: "
"""How the reason of a confirmation begins whose code was not run, because no trusted key has signed it."""


def confirm_all(
    store: Store, suspects: Sequence[Suspect], settings: PairSettings, progress: Progress, stopping: Stopping = never
) -> list[Confirmation]:
    """Measure suspects again, one after the other; store each confirmation at once.

    A device that cannot be opened costs only its own suspects. No suspect begins once ``stopping`` is true.
    """
    progress.begin("confirming", len(suspects))
    confirmer = Confirmer(store, settings)
    confirmations: list[Confirmation] = []
    lost_devices: set[str] = set()
    for suspect in suspects:
        if stopping():
            break
        if suspect.series.device not in lost_devices:
            try:
                confirmations.append(confirmer.confirm(suspect))
                store.confirmations.put(confirmations[-1])
            except NoDeviceError as error:
                lost_devices.add(suspect.series.device)
                progress.report(f"the suspects of {suspect.series.device} are not measured again: {error.what}")
        progress.step(suspect.series.case.id)
    return confirmations


def refusals(confirmations: Iterable[Confirmation]) -> list[str]:
    """Return the reasons of the confirmations whose code was not run, because no trusted key has signed it."""
    reasons = (confirmation.reason for confirmation in confirmations)
    return [reason.removeprefix(REFUSED) for reason in reasons if reason.startswith(REFUSED)]


def with_causes(judgements: Iterable[Judgement], confirmations: Iterable[Confirmation]) -> list[Judgement]:
    """Return the judgements, each with the cause and the reason that the confirmation of its series found.

    A judgement without a cause stays as it is. A confirmation of a further step of a finding is not used, because the
    whole change may have another cause. A second call changes nothing.
    """
    answers = {
        confirmation.suspect.series: confirmation
        for confirmation in confirmations
        if confirmation.suspect.change is not ChangeKind.AGAIN
    }

    def with_cause(judgement: Judgement) -> Judgement:
        """Return a judgement with its confirmation's cause and reason; a second call does not add the reason again."""
        answer = answers.get(judgement.series)
        if answer is None or judgement.cause is None:
            return judgement
        has_reason = answer.reason in judgement.reason
        reason = judgement.reason if has_reason else "; ".join(filter(None, [judgement.reason, answer.reason]))
        return replace(judgement, cause=answer.cause, reason=reason)

    return [with_cause(judgement) for judgement in judgements]


def relevant_change(suspect: Suspect, device_kind: str, asked: judge.ThresholdOption) -> float:
    """Return the smallest change of a suspect that matters, as a fraction.

    This is the requested threshold, or the default of the kind of device. An alert may report a smaller change. Then
    half of that change already matters: if all of it were required, noise would hide every second real change. A rule
    of the settings for the series is always a lower limit.
    """
    series = suspect.series
    threshold = judge.threshold_of(series.case, series.metric, device_kind, asked)
    if suspect.change in {ChangeKind.REGRESSION, ChangeKind.AGAIN} or not suspect.judgement.ratio:
        return threshold
    least = judge.without_override(asked).configured(series.case, series.metric) or 0.0
    return max(least, min(threshold, math.expm1(abs(math.log(suspect.judgement.ratio)) / 2)))


class Confirmer:
    """Measures suspects again and finds their causes; it only reads the store.

    Args:
        store: holds the binaries of both runs.
        settings: how to measure.
    """

    def __init__(self, store: Store, settings: PairSettings) -> None:
        self._store = store
        self._settings = settings
        self._verdicts = cache(store.verdicts.of_run)

    def confirm(self, suspect: Suspect) -> Confirmation:
        """Measure a suspect again until the answer is known or the budget ends.

        Raises:
            NoDeviceError: the suspect's device cannot be opened, or is no longer here.
        """
        began = time.monotonic()
        settings = self._settings
        device = settings.devices.get(suspect.series.device)
        if device is None:  # a resumed night may find that the GPU was exchanged
            what = f"{suspect.series.device_model} ({suspect.series.device}) is no longer here"
            raise NoDeviceError(what, cure="see which GPUs there are: perfsvc doctor")
        unconfirmed = Confirmation(
            suspect,
            Cause.UNCONFIRMED,
            "",
            threshold=relevant_change(suspect, device.kind, settings.threshold),
            seed=settings.seed,
            budget_s=settings.budget_s,
        )
        try:
            sides = self._tasks(suspect)
        except (CaseError, SuiteError, UsageError) as error:
            return replace(unconfirmed, reason=f"it cannot be measured again: {error.what}")
        except UntrustedError as error:
            settings.report(f"{suspect.series.case.id} is not measured again: {error.what}; {error.cure}")
            return replace(unconfirmed, reason=f"{REFUSED}{error.what}; {error.cure}")
        if any(task.bench for task in sides):
            settings = replace(settings, budget_s=PYTHON_BUDGET * settings.budget_s)
            unconfirmed = replace(unconfirmed, budget_s=settings.budget_s)
        threshold, metric = unconfirmed.threshold, suspect.series.metric
        enough = partial(judge.is_decided, direction=suspect.direction, threshold=threshold)
        results = measure_pairs(sides, settings, threshold=threshold, enough=enough, metric=metric)
        concluded = replace(self._concluded(unconfirmed, results), wall_s=time.monotonic() - began)
        if suspect.change is ChangeKind.AGAIN:  # the baseline is a run after the finding's last step
            reason = concluded.reason.replace("the baseline's", f"run {suspect.judgement.baseline_run}'s")
            concluded = replace(concluded, reason=reason)
        return concluded

    def _tasks(self, suspect: Suspect) -> tuple[Task, Task]:
        """Return two tasks, to replay the case as stored by the baseline's run and as stored by the candidate's run."""
        series, judgement = suspect.series, suspect.judgement
        if judgement.baseline_run is None or judgement.candidate_run is None:
            raise UsageError("it has no baseline")
        # A cross-device baseline has no level of this device: then the case of any device is replayed.
        own_level = self._store.series.levels_of({series: judgement.baseline_run})
        device = series.device if own_level else None
        baseline = stored_case(self._store, series, judgement.baseline_run, device)
        candidate = stored_case(self._store, series, judgement.candidate_run, series.device)
        sampling = self._settings.sampling(self._settings.devices[series.device])
        sampling = replace(sampling, energy=series.metric == ENERGY)
        return replay_task(baseline, series, sampling), replay_task(candidate, series, sampling)

    def _concluded(self, unconfirmed: Confirmation, results: PairResults) -> Confirmation:
        """Return the confirmation completed from the A/B pairs: cause, reason, ratio with its interval, and drift."""
        suspect, metric = unconfirmed.suspect, unconfirmed.suspect.series.metric
        code = sides_of(self._store, [suspect.judgement]).get(suspect.series)
        measured = replace(
            unconfirmed,
            same_code=code.code if code else None,
            looks=results.looks,
            baseline=tuple(results.baseline),
            candidate=tuple(results.candidate),
        )
        side, why = results.fault
        if side:
            packages = f" with the packages of today ({code.packages})" if code and code.packages else ""
            return replace(measured, reason=f"the {side}'s binary has no correct result any more{packages}: {why}")
        runs = (*results.baseline, *results.candidate)
        if lacking := next((run for run in runs if not run.values_of(metric)), None):
            return replace(
                measured, reason=f"measured again it has no {metric}: {lacking.note or 'no reason is known'}"
            )
        comparison = results.comparison
        if comparison is None:
            ended = f"the budget of {measured.budget_s:g} s ended after {results.pairs} pairs, too few to tell"
            return replace(measured, reason=f"inconclusive: {ended}")
        if stale := self._stale_packages(suspect, results):
            return replace(measured, reason=f"the packages that it ran with are not here any more: {stale}")
        drift = self._drift(unconfirmed, results)
        device_kind = self._settings.devices[suspect.series.device].kind
        cause, reason = judge.cause_of(
            comparison,
            drift,
            direction=suspect.direction,
            threshold=measured.threshold,
            usual=relevant_change(suspect, device_kind, judge.without_override(self._settings.threshold)),
            same_code=bool(measured.same_code) or bool(code and code.source and code.packages),
            metric=metric,
        )
        if cause is Cause.KERNEL and code and code.launch:
            cause, reason = Cause.LAUNCH, f"{reason}, and only the options of its launches differ: {code.launch}"
        elif cause is Cause.KERNEL and suspect.judgement.cause is Cause.TOOLCHAIN:
            cause, reason = Cause.TOOLCHAIN, f"{reason}, of an equal source"
        elif cause is Cause.ENVIRONMENT and code and code.packages and drift:
            comparison = drift  # both sides ran with today's packages, so only the stored level shows the old packages
            cause, reason = self._by_packages(suspect, code, drift)
        settled = judge.is_decided(comparison, suspect.direction, measured.threshold)
        if cause is Cause.UNCONFIRMED and not settled and results.pairs < judge.LOOKS[-1]:
            reason += f"; the budget of {measured.budget_s:g} s ended after {results.pairs} pairs"
        return replace(
            measured,
            cause=cause,
            reason=reason,
            verdict=comparison.verdict,
            ratio=comparison.ratio,
            low=comparison.low,
            high=comparison.high,
            drift=drift.ratio if drift else None,
        )

    def _by_packages(self, suspect: Suspect, code: SameOnBothSides, drift: Comparison) -> tuple[Cause, str]:
        """Return the cause of a change for which new packages may be to blame, and why.

        ``drift`` compares the baseline's source, measured with today's packages, with the baseline's stored level.
        """
        moved = f"with the packages of today the baseline's source is {units.percent(drift.ratio)} against its level"
        if not code.device:
            return Cause.UNCONFIRMED, f"{moved}; so it may be {code.packages}, or the driver or the power limit"
        run = suspect.judgement.candidate_run
        if run is not None and any(
            judgement.series.device == suspect.series.device
            and judgement.cause is Cause.ENVIRONMENT
            and judge.MOVES.get(judgement.verdict) is suspect.direction
            for judgement in self._verdicts(run)
        ):
            return Cause.UNCONFIRMED, f"{moved}; so it may be {code.packages}, or what moved other cases of the GPU"
        no_pairs = "the packages of that time are gone, so the two cannot be measured in A/B pairs"
        return Cause.TOOLCHAIN, f"{moved}: {code.packages} ({no_pairs})"

    def _stale_packages(self, suspect: Suspect, results: PairResults) -> str:
        """Return which packages differ between the candidate's run and today; empty if none does."""
        series, run = suspect.series, suspect.judgement.candidate_run
        if run is None or not results.candidate or results.candidate[0].python is None:
            return ""
        key = (run, (series.device, series.case, series.cache))
        used = self._store.binaries.of_cases([key]).get(key)
        return changed_packages(used.python, results.candidate[0].python) if used else ""

    def _drift(self, unconfirmed: Confirmation, results: PairResults) -> Comparison | None:
        """Compare the baseline's binary now with its stored level on this GPU; None if there is no such level."""
        judgement = unconfirmed.suspect.judgement
        if judgement.baseline_run is None:
            return None
        level = self._store.series.levels_of({judgement.series: judgement.baseline_run}).get(judgement.series)
        if level is None or not level.replicas:
            return None
        now = [run.values_of(judgement.series.metric) for run in results.baseline]
        return judge.compare(level.replicas, now, threshold=unconfirmed.threshold)


def earlier_answers(store: Store, suspects: Iterable[Suspect], settings: PairSettings) -> list[Confirmation]:
    """Return the confirmations of earlier nights that still hold for tonight's suspects.

    A confirmation holds if all of this is true:

    - its suspect is in an open or acknowledged finding;
    - its cause is the code or the compiler;
    - both sides still have the same code, compiler, driver and power limit;
    - tonight's interval overlaps the confirmed interval.

    A regression that lasts for weeks is therefore measured again only on its first night.

    Args:
        store: holds the findings and confirmations.
        suspects: tonight's suspects.
        settings: how the suspects would be measured again.
    """
    last_run: dict[tuple[Series, Direction], int] = {}
    for finding in store.findings.active():
        for moved in finding.moved if finding.state in STANDING else ():
            if moved.recovered_run is None:
                key = moved.series, moved.direction
                last_run[key] = max(moved.last_run, last_run.get(key, 0))
    confirmations_of = cache(store.confirmations.of_run)
    answers = []
    for suspect in suspects:
        run, device = last_run.get((suspect.series, suspect.direction)), settings.devices.get(suspect.series.device)
        if run is None or device is None:
            continue
        earlier = [
            confirmation
            for confirmation in confirmations_of(run)
            if confirmation.confirmed
            and confirmation.suspect.series == suspect.series
            and confirmation.suspect.direction == suspect.direction
            and (confirmation.suspect.change is ChangeKind.AGAIN) is (suspect.change is ChangeKind.AGAIN)
        ]
        if not earlier:
            continue
        same_threshold = earlier[-1].threshold == relevant_change(suspect, device.kind, settings.threshold)
        if same_threshold and _overlap(earlier[-1], suspect) and _is_unchanged(store, earlier[-1], suspect):
            answers.append(_carried_over(earlier[-1], suspect))
    return answers


def _overlap(answer: Confirmation, suspect: Suspect) -> bool:
    """Return whether the confirmed interval of an earlier night overlaps tonight's interval of the suspect."""
    now = suspect.judgement
    if now.low is None or now.high is None or answer.low is None or answer.high is None:
        return False
    return now.low <= answer.high and answer.low <= now.high


def _is_unchanged(store: Store, answer: Confirmation, suspect: Suspect) -> bool:
    """Return whether tonight's baseline and candidate have the code and environment of those that were confirmed."""
    then, now = answer.suspect.judgement, suspect.judgement
    runs = ((then.baseline_run, now.baseline_run), (then.candidate_run, now.candidate_run))
    for before, after in runs:
        if before == after:
            continue
        judgement = replace(now, baseline_run=before, candidate_run=after)
        sides = sides_of(store, [judgement]).get(suspect.series)
        if sides is None or not (sides.code and sides.toolkit and sides.device):
            return False
    return True


def _carried_over(answer: Confirmation, suspect: Suspect) -> Confirmation:
    """Return an earlier night's confirmation as the answer for tonight's suspect, without the measurements."""
    run = answer.suspect.judgement.candidate_run
    reason = answer.reason if answer.carried_over else f"{answer.reason}, as run {run} had it measured"
    return replace(answer, suspect=suspect, reason=reason, looks=0, drift=None, wall_s=0.0, baseline=(), candidate=())
