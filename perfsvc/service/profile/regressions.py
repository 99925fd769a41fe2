"""Explain confirmed regressions: both binaries are profiled, and the profiles compared.

GPUs of one model with the same regression and the same two binaries share an explanation: both binaries are profiled on
one of the GPUs. All regressions of a GPU are profiled in one session, the largest first, until the budget ends.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from perfsvc import units
from perfsvc.errors import CountersError, MissingPackageError, NoProfilerError, PerfsvcError
from perfsvc.model import TIME, Case, CaseExplanation, ChangeKind, Confirmation, Judgement, ProfileResult
from perfsvc.service.profile.case_profiler import (
    Answers,
    CaseProfiler,
    ProfilerSettings,
    ProfilingTask,
    Subject,
    explain_results,
    subject_of,
)
from perfsvc.service.progress import Progress
from perfsvc.store import Store


@dataclass(slots=True)
class SharedRegression:
    """A regression that several GPUs of one model have with the same two binaries.

    Attributes:
        factor: the candidate's time over the baseline's, as the A/B pairs measured it; the largest of the GPUs.
        sides: the baseline and the candidate on each GPU, by the UUID of the GPU.
        device: the UUID of the GPU on which both sides are profiled.
        tasks: what has to be profiled: the candidate, then the baseline; None for a side with a stored profile.
        stored: the stored profiles of both sides, in the same order.
    """

    case: Case
    factor: float
    sides: dict[str, tuple[Subject, Subject]] = field(default_factory=dict)
    device: str = ""
    tasks: tuple[ProfilingTask | None, ProfilingTask | None] = (None, None)
    stored: tuple[ProfileResult | None, ProfileResult | None] = (None, None)


def explain_confirmed(
    store: Store, confirmations: Sequence[Confirmation], settings: ProfilerSettings, progress: Progress
) -> list[CaseExplanation]:
    """Explain every confirmed regression of a time, once for each case and device, and store the explanations.

    A case that cannot be profiled costs only its own explanation. A device that no profiler supports is reported once.
    A regression for which the budget leaves no time has no explanation; the number of these is reported.
    """
    regressed = [confirmation for confirmation in confirmations if confirmation.regressed]
    # Further steps come last, so that the dict keeps the newest step of each series.
    regressed.sort(key=lambda confirmation: confirmation.suspect.change is ChangeKind.AGAIN)
    by_case = {
        (confirmation.suspect.series.device, confirmation.suspect.series.case): confirmation
        for confirmation in regressed
        if confirmation.suspect.series.metric == TIME
    }
    return _Explainer(store, settings, progress).explain(list(by_case.values())) if by_case else []


class _Explainer:
    """Explains confirmed regressions, one for each case and device."""

    def __init__(self, store: Store, settings: ProfilerSettings, progress: Progress) -> None:
        self._store = store
        self._settings = settings
        self._progress = progress
        self._profiler = CaseProfiler(store, settings)
        self._explanations: list[CaseExplanation] = []

    def explain(self, confirmations: Sequence[Confirmation]) -> list[CaseExplanation]:
        """Explain the regressions of confirmations, store the explanations, and return them."""
        by_device: dict[str, list[SharedRegression]] = {}
        for shared in self._shared(confirmations):
            self._choose_device(shared, by_device)
            by_device.setdefault(shared.device, []).append(shared)
        self._progress.begin("profiling", sum(len(_tasks(regressions)) for regressions in by_device.values()))
        until = time.monotonic() + self._settings.budget_s
        over_budget = 0
        for number, regressions in enumerate(by_device.values()):
            left_s = until - time.monotonic()  # each GPU gets an equal part of what the GPUs before it leave
            over_budget += self._explain_on_device(regressions, time.monotonic() + left_s / (len(by_device) - number))
        if over_budget:
            were, them = ("was", "it") if over_budget == 1 else ("were", "them")
            self._settings.report(
                f"{units.count(over_budget, 'regression')} {were} not profiled: the budget of "
                f"{self._settings.budget_s:g} s ended; the next night profiles {them}"
            )
        return self._explanations

    def _shared(self, confirmations: Sequence[Confirmation]) -> list[SharedRegression]:
        """Return the regressions in the order in which they are profiled.

        Binaries that could not be profiled the last time come last, so that they cost no other regression its time.
        Then the largest regression comes first.
        """
        found: dict[tuple[object, ...], SharedRegression] = {}
        for confirmation in confirmations:
            judgement = confirmation.suspect.judgement
            uuid, case = judgement.series.device, judgement.series.case
            if uuid not in self._settings.devices:  # a resumed night may find that the GPU was exchanged
                self._settings.report(f"nothing is profiled on {uuid}: this GPU is no longer here")
                continue
            try:
                sides = self._sides(judgement)
            except PerfsvcError as error:
                self._put(_unexplained(judgement, self._settings.devices[uuid].model, error))
                continue
            key = (self._settings.devices[uuid].model, case, *(side.binary for side in sides))
            shared = found.setdefault(key, SharedRegression(case, 0.0))
            shared.factor = max(shared.factor, confirmation.ratio or judgement.ratio or 0.0)
            shared.sides[uuid] = sides
        failed = {uuid: self._store.profiles.failed(uuid) for uuid in self._settings.devices}

        def has_failed(shared: SharedRegression) -> bool:
            return any(side.binary in failed[uuid] for uuid, sides in shared.sides.items() for side in sides)

        return sorted(found.values(), key=lambda shared: (has_failed(shared), -shared.factor))

    def _sides(self, judgement: Judgement) -> tuple[Subject, Subject]:
        """Return the baseline and the candidate of a judgement; raise ``NotMeasuredError`` if a binary is gone."""
        case, uuid = judgement.series.case.id, judgement.series.device
        here = {uuid: self._settings.devices[uuid]}
        baseline, candidate = judgement.baseline_run or 0, judgement.candidate_run or 0
        return subject_of(self._store, case, baseline, here), subject_of(self._store, case, candidate, here)

    def _choose_device(self, shared: SharedRegression, used: Mapping[str, object]) -> None:
        """Choose the GPU of a regression, and what has to be profiled on it.

        A GPU with stored profiles comes first, then a GPU that profiles other regressions, then the first GPU.
        """
        for uuid, (baseline, candidate) in shared.sides.items():
            after, before = self._profiler.stored_profile(candidate), self._profiler.stored_profile(baseline)
            if after and before and _comparison_key(before) == _comparison_key(after):
                shared.device, shared.stored = uuid, (after, before)
                return
        shared.device = next((uuid for uuid in shared.sides if uuid in used), next(iter(shared.sides)))
        baseline, candidate = shared.sides[shared.device]
        after = self._profiler.stored_profile(candidate)
        task = None if after else ProfilingTask(candidate)
        # The candidate's longest launch is profiled, because most of the time goes there, and the baseline's launch at
        # the same position. A baseline that was profiled before may be of another launch, so it is profiled again.
        shared.tasks, shared.stored = (task, ProfilingTask(baseline, after or task)), (after, None)

    def _explain_on_device(self, regressions: Sequence[SharedRegression], deadline: float) -> int:
        """Profile and explain the regressions of a device; return for how many GPUs and cases no time was left."""
        tasks = _tasks(regressions)
        device = self._settings.devices[regressions[0].device]
        answers: Answers = {}
        refusal: CountersError | None = None
        if tasks:
            try:
                answers = self._profiler.profile_all(tasks, deadline)
            except (NoProfilerError, MissingPackageError) as error:
                self._settings.report(f"nothing is profiled on {device.model}: {error.what}; {error.cure}")
                regressions = [shared for shared in regressions if not any(shared.tasks)]
            except CountersError as error:
                refusal = error
        over_budget = 0
        for shared in regressions:
            sides: list[ProfileResult | PerfsvcError | None] = [
                answers.get(task, refusal) if task else stored
                for task, stored in zip(shared.tasks, shared.stored, strict=True)
            ]
            if failure := next((side for side in sides if isinstance(side, PerfsvcError)), None):
                self._put_all(shared, CaseExplanation(*_columns(shared), reason=_reason(failure)))
                continue
            profiles = [side for side in sides if isinstance(side, ProfileResult)]
            if len(profiles) == len(sides):
                self._put_all(shared, self._compared(shared, *profiles))
            else:
                over_budget += len(shared.sides)
        return over_budget

    def _compared(self, shared: SharedRegression, after: ProfileResult, before: ProfileResult) -> CaseExplanation:
        """Return why the candidate takes longer than the baseline on the GPU that profiled both."""
        try:
            explanation = explain_results(self._store, before, after)
        except PerfsvcError as error:
            return CaseExplanation(*_columns(shared), reason=_reason(error))
        return CaseExplanation(
            *_columns(shared),
            explanation.sentence,
            explanation.reasons,
            explanation.factor,
            profiles=(before.id, after.id),
        )

    def _put_all(self, shared: SharedRegression, explanation: CaseExplanation) -> None:
        """Store the explanation of a regression for each of its GPUs; the GPU on which it was profiled comes first."""
        self._put(explanation)
        profiled_on = f" Profiled on {shared.device}, which has the same model and the same binaries."
        for uuid, (baseline, candidate) in shared.sides.items():
            if uuid != shared.device:
                sentence = explanation.sentence and explanation.sentence + profiled_on
                of_device = replace(explanation, device=uuid, sentence=sentence)
                self._put(replace(of_device, baseline_run=baseline.run, candidate_run=candidate.run))

    def _put(self, explanation: CaseExplanation) -> None:
        self._store.profiles.put_explanation(explanation)
        self._explanations.append(explanation)


def _tasks(regressions: Sequence[SharedRegression]) -> list[ProfilingTask]:
    return [task for shared in regressions for task in shared.tasks if task]


def _columns(shared: SharedRegression) -> tuple[Case, str, str, int, int]:
    """Return the first values of an explanation: case, device, model, baseline and candidate."""
    baseline, candidate = shared.sides[shared.device]
    return candidate.case, shared.device, candidate.device.model, baseline.run, candidate.run


def _unexplained(judgement: Judgement, model: str, error: PerfsvcError) -> CaseExplanation:
    """Return that a judgement's candidate is not explained, because a binary is no longer stored."""
    series, candidate = judgement.series, judgement.candidate_run or 0
    return CaseExplanation(series.case, series.device, model, judgement.baseline_run, candidate, reason=_reason(error))


def _reason(error: PerfsvcError) -> str:
    return f"{error.what}; {error.cure}" if error.cure else error.what


def _comparison_key(result: ProfileResult) -> tuple[str, str, int | None]:
    """Return what two profiles must have in common to be compared: kernel, profiler version, launch."""
    profile = result.profile
    return (profile.kernel, profile.ncu_version, result.launch) if profile else ("", "", None)
