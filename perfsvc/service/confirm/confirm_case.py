"""Measure a case that the user names again: ``perfsvc confirm``."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from perfsvc import judge
from perfsvc.device.find import find
from perfsvc.errors import NotMeasuredError, UntrustedError
from perfsvc.measure.host.pool import worker_servers
from perfsvc.model import TIME, ChangeKind, Confirmation, DeviceInfo, Direction, Judgement, Suspect
from perfsvc.service.confirm.confirm import confirm_all, not_measured, refusals
from perfsvc.service.confirm.pairs import BUDGET_S, PairSettings
from perfsvc.service.findings.update import update_findings
from perfsvc.service.prepare.targets import compile_helper_kernels, default_sampling, seed_of, with_groups
from perfsvc.service.progress import Progress
from perfsvc.service.revisions import resolve
from perfsvc.store import Store

INCONCLUSIVE = 3
"""The exit code if a case was not measured again, and the run's verdict reports no regression."""


@dataclass(frozen=True, slots=True)
class ConfirmRequest:
    """The options of ``perfsvc confirm``.

    Attributes:
        case: the id of the case.
        run: the run that made the case a suspect: its number, its label, a git revision or the like.
        folder: where git revisions are looked up.
        devices: the devices on which the case is measured again.
        budget_s: seconds on each device.
        threshold: the smallest relevant change as a fraction, or rules; None for the default of the kind of device.
        seed: decides the order of processes; None for a random one.
        metric: the metric that is compared.
    """

    database: str
    case: str
    run: str
    folder: Path
    devices: tuple[str, ...] = ("auto",)
    budget_s: float = BUDGET_S
    threshold: judge.ThresholdOption = None
    seed: int | None = None
    metric: str = TIME


def confirm_case(request: ConfirmRequest, progress: Progress) -> tuple[list[Confirmation], list[Suspect]]:
    """Measure a case of a run again, on each device and in each cache state that was judged.

    Return the confirmations, and the suspects that were not measured again: the budget ended before three A/B pairs, or
    the device was lost. Report each series that did not move in the run; it is measured, too.

    Raises:
        NotMeasuredError: the run judged no such metric of the case on these devices.
        InfrastructureError: there is no device, no compiler for the device's helper kernels, or no database.
    """
    with Store.open(request.database, create=False) as store, worker_servers() as servers:
        run = resolve(request.run, store, request.folder).id
        judgements = store.verdicts.of_run(run)
        measured_on = [judgement.series.device for judgement in judgements]
        devices = {device.uuid: device for device in with_groups(find(request.devices), measured_on)}
        suspects = _suspects(request, run, judgements, devices)
        settings = PairSettings(
            devices=devices,
            sampling=default_sampling,
            helper_kernels=compile_helper_kernels(devices.values(), progress),
            seed=seed_of(request.seed),
            threshold=request.threshold,
            budget_s=request.budget_s,
            servers=servers,
            report=progress.report,
        )
        for suspect in suspects:
            if suspect.judgement.verdict not in judge.MOVES:
                progress.report(_unmoved(suspect.judgement))
        confirmations, over_budget = confirm_all(store, suspects, settings, progress)
        if over_budget:
            progress.report(
                f"{not_measured(over_budget)}: {request.budget_s:g} s is too short for three A/B pairs; "
                "give more time: --budget"
            )
        update_findings(store, run, threshold=request.threshold)
        answered = {confirmation.suspect for confirmation in confirmations}
        return confirmations, [suspect for suspect in suspects if suspect not in answered]


def exit_code(confirmations: Iterable[Confirmation], unmeasured: Sequence[Suspect]) -> int:
    """Return the exit code of ``perfsvc confirm``.

    It is 5 if stored code was refused, 4 if a side has no correct result, and 1 for a confirmed regression or for an
    unmeasured suspect that is a regression by the run's verdict. It is 3 for any other unmeasured suspect, else 0.
    """
    confirmations = tuple(confirmations)
    if refusals(confirmations):
        return UntrustedError.exit_code
    if any(confirmation.failed for confirmation in confirmations):
        return 4
    if any(confirmation.regressed for confirmation in confirmations):
        return 1
    by_verdict = judge.exit_code([suspect.judgement for suspect in unmeasured], failed=False, strict=False)
    return by_verdict or (INCONCLUSIVE if unmeasured else 0)


def _suspects(
    request: ConfirmRequest, run: int, judgements: Sequence[Judgement], devices: Mapping[str, DeviceInfo]
) -> list[Suspect]:
    """Return the judged series of the requested case on the given devices as suspects."""
    judged = [
        judgement
        for judgement in judgements
        if (judgement.series.case.id, judgement.series.metric) == (request.case, request.metric)
        and judgement.baseline_run is not None
        and judgement.candidate_run is not None
        and judgement.ratio
    ]
    if not judged:
        raise NotMeasuredError(
            f"run {run} compared no {request.metric} of {request.case} with a baseline",
            cure=f"perfsvc show '{request.case}'",
        )
    on_devices = [_suspect(judgement) for judgement in judged if judgement.series.device in devices]
    if not on_devices:
        where = ", ".join(
            dict.fromkeys(f"{judgement.series.device_model} ({judgement.series.device})" for judgement in judged)
        )
        raise NotMeasuredError(
            f"run {run} measured {request.case} on {where}, which is none of the devices asked for",
            cure="measure it again where it was measured: --device",
        )
    return on_devices


def _unmoved(judgement: Judgement) -> str:
    """Return a message about a series that did not move in its run."""
    case, run = judgement.series.case.id, judgement.candidate_run
    return (
        f"{case} did not move in run {run}: {judgement.verdict} against {judgement.against}; "
        f"to compare run {run} with an older run: perfsvc compare OLDER {run}"
    )


def _suspect(judgement: Judgement) -> Suspect:
    """Return a judged series as a suspect, even if its verdict is no regression."""
    slower = judgement.ratio is None or judgement.ratio >= 1
    direction = Direction.SLOWER if slower else Direction.FASTER
    return Suspect(judgement, ChangeKind.REGRESSION, direction, judgement.reason)
