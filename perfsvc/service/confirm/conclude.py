"""Prepare a suspect for its A/B pairs, and conclude from the pairs why its series moved."""

import math
from dataclasses import replace
from functools import cache, partial

from perfsvc import judge, units
from perfsvc.errors import CaseError, SuiteError, UntrustedError, UsageError
from perfsvc.judge import Comparison, SameOnBothSides
from perfsvc.measure.plan.order import Task
from perfsvc.model import ENERGY, Cause, ChangeKind, Confirmation, Suspect
from perfsvc.service.compare.nights import with_nights
from perfsvc.service.compare.sides import changed_packages, sides_of
from perfsvc.service.confirm.pairs import PairResults, PairSettings, Sides, replay_task, stored_case
from perfsvc.store import CaseBinary, Store

REFUSED = "refused: "
"""How the reason of a confirmation begins whose code was not run, because no trusted key has signed it."""


def relevant_change(suspect: Suspect, device_kind: str, asked: judge.ThresholdOption) -> float:
    """Return the smallest change of a suspect that matters, as a fraction.

    This is the requested threshold, or the default of the kind of device. An alert may report a change that is little
    more than the threshold. Then half of that change already matters: if all of it were required, noise would hide
    every second real change. A rule of the settings for the series is always a lower limit.
    """
    series = suspect.series
    threshold = judge.threshold_of(series.case, series.metric, device_kind, asked)
    if suspect.change in {ChangeKind.REGRESSION, ChangeKind.AGAIN} or not suspect.judgement.ratio:
        return threshold
    least = judge.without_override(asked).configured(series.case, series.metric) or 0.0
    return max(least, min(threshold, math.expm1(abs(math.log(suspect.judgement.ratio)) / 2)))


class Confirmer:
    """Prepares suspects for their A/B pairs, and finds their causes from the pairs; it only reads the store.

    Args:
        store: holds the binaries of both runs.
        settings: how to measure.
    """

    def __init__(self, store: Store, settings: PairSettings) -> None:
        self._store = store
        self._settings = settings
        self._verdicts = cache(store.verdicts.of_run)

    def prepare(self, suspect: Suspect) -> tuple[Confirmation, Sides | None]:
        """Return the confirmation of a suspect before any measurement, and what to measure.

        If the suspect cannot be measured, the confirmation has the reason, and there is nothing to measure. The
        suspect's device must be one of the settings' devices.
        """
        settings = self._settings
        device = settings.devices[suspect.series.device]
        threshold = relevant_change(suspect, device.kind, settings.threshold)
        unconfirmed = Confirmation(
            suspect,
            Cause.UNCONFIRMED,
            "",
            threshold=threshold,
            seed=settings.seed,
            budget_s=settings.budget_s,
        )
        try:
            baseline, candidate = self._tasks(suspect)
        except (CaseError, SuiteError, UsageError) as error:
            return replace(unconfirmed, reason=f"it cannot be measured again: {error.what}"), None
        except UntrustedError as error:
            settings.report(f"{suspect.series.case.id} is not measured again: {error.what}; {error.cure}")
            return replace(unconfirmed, reason=f"{REFUSED}{error.what}; {error.cure}"), None
        enough = partial(judge.is_decided, direction=suspect.direction, threshold=threshold)
        return unconfirmed, Sides(baseline, candidate, threshold, enough, suspect.series.metric)

    def _tasks(self, suspect: Suspect) -> tuple[Task, Task]:
        """Return two tasks, to replay the case as stored by the baseline's run and as stored by the candidate's run.

        Both measure at as many places as the candidate's run did.
        """
        series, judgement = suspect.series, suspect.judgement
        if judgement.baseline_run is None or judgement.candidate_run is None:
            raise UsageError("it has no baseline")
        # A cross-device baseline has no level of this device: then the case of any device is replayed.
        own_level = self._store.series.levels_of({series: judgement.baseline_run})
        device = series.device if own_level else None
        baseline = stored_case(self._store, series, judgement.baseline_run, device)
        candidate = stored_case(self._store, series, judgement.candidate_run, series.device)
        sampling = self._settings.sampling(self._settings.devices[series.device])
        used = self._used(suspect)
        places = used.environment.places if used else sampling.places
        sampling = replace(sampling, energy=series.metric == ENERGY, places=places)
        return replay_task(baseline, series, sampling), replay_task(candidate, series, sampling)

    def conclude(self, unconfirmed: Confirmation, results: PairResults) -> Confirmation:
        """Return the confirmation completed from the A/B pairs: cause, reason, ratio with its interval, and drift.

        Args:
            unconfirmed: the confirmation before any measurement.
            results: the pairs, compared at least once unless a side has no correct result or lacks the metric.
        """
        suspect, metric = unconfirmed.suspect, unconfirmed.suspect.series.metric
        code = sides_of(self._store, [suspect.judgement]).get(suspect.series)
        measured = replace(
            unconfirmed,
            same_code=code.code if code else None,
            looks=results.looks,
            wall_s=results.wall_s,
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
            raise ValueError("the pairs were never compared")
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
        elif cause is Cause.ENVIRONMENT and code and drift and (code.packages or code.inputs):
            comparison = drift  # both sides ran with what there is today, so only the stored level shows what there was
            cause, reason = self._by_use(suspect, code, drift)
        settled = judge.is_decided(comparison, suspect.direction, measured.threshold)
        if cause is Cause.UNCONFIRMED and not settled and results.pairs < judge.LOOKS[-1]:
            reason += f"; the budget of {measured.budget_s:g} s ended after {results.pairs} pairs"
        if suspect.change is ChangeKind.AGAIN:  # the baseline is a run after the finding's last step
            reason = reason.replace("the baseline's", f"run {suspect.judgement.baseline_run}'s")
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

    def _by_use(self, suspect: Suspect, code: SameOnBothSides, drift: Comparison) -> tuple[Cause, str]:
        """Return the cause of a change for which what the code runs with may be to blame, and why.

        ``drift`` compares the baseline's source, measured with what there is today, with the baseline's stored level.
        """
        changed = ", ".join(filter(None, [code.packages, code.inputs]))
        moved = f"run as today, the baseline's source is {units.percent(drift.ratio)} against its level"
        if not code.device:
            return Cause.UNCONFIRMED, f"{moved}; so it may be {changed}, or another change of the environment"
        run = suspect.judgement.candidate_run
        if run is not None and any(
            judgement.series.device == suspect.series.device
            and judgement.cause is Cause.ENVIRONMENT
            and judge.MOVES.get(judgement.verdict) is suspect.direction
            for judgement in self._verdicts(run)
        ):
            return Cause.UNCONFIRMED, f"{moved}; so it may be {changed}, or what moved other cases of the GPU"
        no_pairs = "what it ran with then is gone, so the two cannot be measured in A/B pairs"
        return Cause.TOOLCHAIN if code.packages else Cause.INPUTS, f"{moved}: {changed} ({no_pairs})"

    def _stale_packages(self, suspect: Suspect, results: PairResults) -> str:
        """Return which packages differ between the candidate's run and today; empty if none does."""
        if not results.candidate or results.candidate[0].python is None:
            return ""
        used = self._used(suspect)
        return changed_packages(used.python, results.candidate[0].python) if used else ""

    def _used(self, suspect: Suspect) -> CaseBinary | None:
        """Return what the suspect's case used in the candidate's run; None if this is not stored."""
        series, run = suspect.series, suspect.judgement.candidate_run
        if run is None:
            return None
        key = (run, (series.device, series.case, series.cache))
        return self._store.binaries.of_cases([key]).get(key)

    def _drift(self, unconfirmed: Confirmation, results: PairResults) -> Comparison | None:
        """Compare the baseline's binary now with its stored level on this GPU; None if there is no such level.

        The level is that of all nights of the baseline, as for the verdict: a single night may have been noisy.
        """
        suspect, judgement = unconfirmed.suspect, unconfirmed.suspect.judgement
        if judgement.baseline_run is None or judgement.candidate_run is None:
            return None
        levels = self._store.series.levels_of({judgement.series: judgement.baseline_run})
        if suspect.change is not ChangeKind.AGAIN:  # a further step is compared with a single run
            levels = with_nights(self._store, levels, judgement.candidate_run, levels)
        level = levels.get(judgement.series)
        if level is None or not len(level.medians):
            return None
        now = judge.level_of_samples([run.values_of(judgement.series.metric) for run in results.baseline])
        return judge.compare_levels(level, now, threshold=unconfirmed.threshold)
