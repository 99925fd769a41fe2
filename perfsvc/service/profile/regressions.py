"""Why a case takes longer in one run than in another: both binaries profiled, and the profiles explained."""

from collections.abc import Sequence
from dataclasses import dataclass

from perfsvc import units
from perfsvc.errors import CountersError, MissingPackageError, NoProfilerError, PerfsvcError
from perfsvc.model import TIME, CaseExplanation, Confirmation, DeviceInfo, Judgement, ProfileResult, Reason
from perfsvc.profile.explain import explain
from perfsvc.service.profile.profile import ProfileSettings, Profiling, Subject, counted, subject_of
from perfsvc.service.progress import Progress
from perfsvc.store import Store


@dataclass(frozen=True, slots=True)
class Sides:
    """Two cases to be compared on one device."""

    baseline: Subject
    candidate: Subject


class Why:
    """Explains what takes longer; what profilers saw is stored.

    Args:
        store: holds both runs.
        under: what cases are profiled with.
    """

    def __init__(self, store: Store, under: ProfileSettings) -> None:
        self._store = store
        self._profiling = Profiling(store, under)
        self._refused: dict[str, PerfsvcError] = {}

    def profiles(self, sides: Sides) -> tuple[ProfileResult, ProfileResult]:
        """The profiles of both sides: those that are stored, and what is missing made now.

        The candidate's longest launch is looked at, since there the time went, and the baseline's at the same place. A
        stored profile of the baseline counts if it is of that launch and of the same profiler.

        Raises:
            PerfsvcError: a side has no profile and none can be made.
        """
        candidate = self._profiling.known(sides.candidate) or self._made(sides.candidate)
        baseline = self._profiling.known(sides.baseline)
        if baseline is None or _by(baseline) != _by(candidate):
            baseline = self._made(sides.baseline, candidate)
        return baseline, candidate

    def _made(self, subject: Subject, like: ProfileResult | None = None) -> ProfileResult:
        """A profile made now; what keeps the profiler from a device altogether is not tried twice."""
        if refusal := self._refused.get(subject.device.uuid):
            raise refusal
        try:
            return self._profiling.profile(subject, like)
        except (CountersError, NoProfilerError, MissingPackageError) as error:  # whatever the case
            self._refused[subject.device.uuid] = error
            raise

    def explain(self, sides: Sides) -> CaseExplanation:
        """Why the candidate takes longer, not stored; raises ``PerfsvcError`` where nobody can tell."""
        baseline, candidate = self.profiles(sides)
        found = explain(counted(baseline), counted(candidate))
        return CaseExplanation(
            sides.candidate.case,
            sides.candidate.device.uuid,
            sides.candidate.device.model,
            sides.baseline.run,
            sides.candidate.run,
            found.sentence,
            tuple(map(_line, found.reasons)),
            found.factor,
            profiles=(baseline.id, candidate.id),
        )


def explain_confirmed(
    store: Store, confirmations: Sequence[Confirmation], under: ProfileSettings, progress: Progress
) -> list[CaseExplanation]:
    """Explains every confirmed regression of a time, once for each case and device, and stores what comes of each.

    What cannot be profiled costs its own explanation alone, and where no profiler looks at a device, that is said once.
    """
    regressed = [one.suspect for one in confirmations if one.regressed and one.suspect.series.metric == TIME]
    cases = {(one.series.device, one.series.case): one.judgement for one in regressed}
    if not cases:
        return []
    progress.begin("profiling", len(cases))
    why = Why(store, under)
    silent: set[str] = set()
    found: list[CaseExplanation] = []
    for (uuid, case), judged in cases.items():
        if uuid not in under.devices:  # a night that goes on may find another GPU in its place
            under.say(f"nothing is profiled on {uuid}: it is not here any more")
        elif uuid not in silent:
            try:
                found.append(_explained(store, why, judged, under.devices[uuid]))
                store.put_explained(found[-1])
            except (NoProfilerError, MissingPackageError) as error:
                silent.add(uuid)
                under.say(f"nothing is profiled on {under.devices[uuid].model}: {error.what}; {error.cure}")
        progress.step(case.id)
    return found


def _explained(store: Store, why: Why, judged: Judgement, device: DeviceInfo) -> CaseExplanation:
    """Why a judgement's candidate takes longer, or why nobody can tell; raises where no profiler looks at the device.

    Both runs are there, since both binaries were measured again.
    """
    case, here = judged.series.case, {device.uuid: device}
    baseline, candidate = judged.baseline_run or 0, judged.candidate_run or 0
    try:
        return why.explain(
            Sides(subject_of(store, case.id, baseline, here), subject_of(store, case.id, candidate, here))
        )
    except (NoProfilerError, MissingPackageError):
        raise
    except PerfsvcError as error:
        reason = f"{error.what}; {error.cure}" if error.cure else error.what
        return CaseExplanation(case, device.uuid, device.model, judged.baseline_run, candidate, reason=reason)


def _by(profiled: ProfileResult) -> tuple[str, str, int | None]:
    """What two profiles have to have in common to be compared: kernel, profiler, launch."""
    profile = profiled.profile
    return (profile.kernel, profile.ncu_version, profiled.launch) if profile else ("", "", None)


def _line(reason: Reason) -> str:
    """A reason as a line of evidence: ``bank conflicts 96 %: loads 1-way → 32-way``."""
    return f"{reason.kind} {units.share(reason.share)}: {reason.detail}"
