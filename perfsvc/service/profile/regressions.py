"""Explain confirmed regressions: both binaries are profiled, and the profiles compared."""

from collections.abc import Sequence

from perfsvc import units
from perfsvc.errors import CountersError, MissingPackageError, NoProfilerError, PerfsvcError
from perfsvc.model import TIME, CaseExplanation, ChangeKind, Confirmation, DeviceInfo, Judgement, ProfileResult, Reason
from perfsvc.profile.explain import explain
from perfsvc.service.profile.profile import CaseProfiler, ProfilerSettings, Subject, profile_of, subject_of
from perfsvc.service.progress import Progress
from perfsvc.store import Store


def explain_confirmed(
    store: Store, confirmations: Sequence[Confirmation], settings: ProfilerSettings, progress: Progress
) -> list[CaseExplanation]:
    """Explain every confirmed regression of a time, once for each case and device, and store the explanations.

    A case that cannot be profiled costs only its own explanation. A device that no profiler supports is reported once.
    """
    regressed = [confirmation.suspect for confirmation in confirmations if confirmation.regressed]
    # Further steps come last, so that the dict keeps the newest step of each series.
    regressed.sort(key=lambda suspect: suspect.change is ChangeKind.AGAIN)
    judgements = {
        (suspect.series.device, suspect.series.case): suspect.judgement
        for suspect in regressed
        if suspect.series.metric == TIME
    }
    if not judgements:
        return []
    progress.begin("profiling", len(judgements))
    explainer = RegressionExplainer(store, settings)
    skipped_devices: set[str] = set()
    explanations: list[CaseExplanation] = []
    for (uuid, case), judgement in judgements.items():
        if uuid not in settings.devices:  # a resumed night may find that the GPU was exchanged
            settings.report(f"nothing is profiled on {uuid}: this GPU is no longer here")
        elif uuid not in skipped_devices:
            device = settings.devices[uuid]
            try:
                explanations.append(_explanation(store, explainer, judgement, device))
                store.profiles.put_explanation(explanations[-1])
            except (NoProfilerError, MissingPackageError) as error:
                skipped_devices.add(uuid)
                settings.report(f"nothing is profiled on {device.model}: {error.what}; {error.cure}")
        progress.step(case.id)
    return explanations


def _explanation(
    store: Store, explainer: "RegressionExplainer", judgement: Judgement, device: DeviceInfo
) -> CaseExplanation:
    """Return why a judgement's candidate is slower, or why that is unknown; raise if no profiler supports the device.

    Both runs have binaries, because both were measured again.
    """
    case, here = judgement.series.case, {device.uuid: device}
    baseline, candidate = judgement.baseline_run or 0, judgement.candidate_run or 0
    try:
        return explainer.explain(
            subject_of(store, case.id, baseline, here), subject_of(store, case.id, candidate, here)
        )
    except (NoProfilerError, MissingPackageError):
        raise
    except PerfsvcError as error:
        reason = f"{error.what}; {error.cure}" if error.cure else error.what
        return CaseExplanation(case, device.uuid, device.model, judgement.baseline_run, candidate, reason=reason)


class RegressionExplainer:
    """Explains why a candidate takes longer than its baseline; it stores the profiles that it makes.

    Args:
        store: holds both runs.
        settings: how to profile.
    """

    def __init__(self, store: Store, settings: ProfilerSettings) -> None:
        self._profiler = CaseProfiler(store, settings)
        self._refusals: dict[str, PerfsvcError] = {}

    def explain(self, baseline: Subject, candidate: Subject) -> CaseExplanation:
        """Return why the candidate takes longer; raise ``PerfsvcError`` if a side has no profile."""
        before, after = self.profiles(baseline, candidate)
        explanation = explain(profile_of(before), profile_of(after))
        return CaseExplanation(
            candidate.case,
            candidate.device.uuid,
            candidate.device.model,
            baseline.run,
            candidate.run,
            explanation.sentence,
            tuple(map(_line, explanation.reasons)),
            explanation.factor,
            profiles=(before.id, after.id),
        )

    def profiles(self, baseline: Subject, candidate: Subject) -> tuple[ProfileResult, ProfileResult]:
        """Return the profiles of both sides: stored profiles, or new profiles where none are stored.

        The candidate's longest launch is profiled, because most of the time goes there. The baseline's launch at the
        same position is profiled too. A stored profile of the baseline counts if it has the same launch and the same
        profiler.

        Raises:
            PerfsvcError: a side has no profile, and none can be made.
        """
        after = self._profiler.stored_profile(candidate) or self._new_profile(candidate)
        before = self._profiler.stored_profile(baseline)
        if before is None or _comparison_key(before) != _comparison_key(after):
            before = self._new_profile(baseline, after)
        return before, after

    def _new_profile(self, subject: Subject, like: ProfileResult | None = None) -> ProfileResult:
        """Profile a subject; if a profiler has refused the subject's device before, raise that error again."""
        if refusal := self._refusals.get(subject.device.uuid):
            raise refusal
        try:
            return self._profiler.profile(subject, like)
        except (CountersError, NoProfilerError, MissingPackageError) as error:
            self._refusals[subject.device.uuid] = error
            raise


def _comparison_key(result: ProfileResult) -> tuple[str, str, int | None]:
    """Return what two profiles must have in common to be compared: kernel, profiler version, launch."""
    profile = result.profile
    return (profile.kernel, profile.ncu_version, result.launch) if profile else ("", "", None)


def _line(reason: Reason) -> str:
    """Return a reason as a line of evidence: ``bank conflicts 96 %: loads 1-way → 32-way``."""
    return f"{reason.kind} {units.share(reason.share)}: {reason.detail}"
