"""A suspect that a person names, measured again."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from perfsvc import judge
from perfsvc.device.find import find
from perfsvc.errors import NotMeasuredError
from perfsvc.measure.host.fork_servers import ForkServers
from perfsvc.model import TIME, ChangeKind, Confirmation, DeviceInfo, Direction, Judgement, Suspect
from perfsvc.service.confirm.confirm import confirm_all
from perfsvc.service.confirm.pairs import BUDGET_S, Means
from perfsvc.service.findings import update
from perfsvc.service.progress import Progress, Silent
from perfsvc.service.revisions import resolve
from perfsvc.service.run.measure import usual_sampling
from perfsvc.service.run.prepare import compile_helper_kernels
from perfsvc.service.run.request import seed_of
from perfsvc.store import Store


@dataclass(frozen=True, slots=True)
class ConfirmRequest:
    """The options of ``perfsvc confirm``.

    Attributes:
        case: its id.
        run: the run that made it a suspect, as ``perfsvc.service.revisions`` understands it.
        folder: where git revisions are looked up.
        devices: where it is measured again.
        budget_s: seconds for each device and cache state of the case.
        threshold: the smallest relevant change as a fraction, or rules; None for what suits the kind of device.
        seed: decides the order of processes; None for any.
        metric: what is measured again.
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


def confirm_case(request: ConfirmRequest, progress: Progress | None = None) -> list[Confirmation]:
    """Measures a case of a run again, on each device and in each cache state that it was judged in, and stores it.

    Raises:
        NotMeasuredError: the run judged no such metric of the case on these devices.
        InfrastructureError: no device, no compiler for what it works with, or no database.
    """
    progress = progress or Silent()
    with Store.open(request.database, create=False) as store, ForkServers() as servers:
        run = resolve(request.run, store, request.folder).id
        devices = {device.uuid: device for device in find(request.devices)}
        suspects = _suspects(request, run, store.verdicts(run), devices)
        means = Means(
            devices=devices,
            sampling=usual_sampling,
            helper_kernels=compile_helper_kernels(devices.values(), progress),
            seed=seed_of(request.seed),
            threshold=request.threshold,
            budget_s=request.budget_s,
            servers=servers,
            say=progress.say,
        )
        confirmations = confirm_all(store, suspects, means, progress)
        update.update_findings(store, run, threshold=request.threshold)
        return confirmations


def exit_code(confirmations: Iterable[Confirmation]) -> int:
    """4 where a side has no right result any more, else 1 where a regression is confirmed, else 0."""
    found = tuple(confirmations)
    if any(one.failed for one in found):
        return 4
    return int(any(one.regressed for one in found))


def _suspect(judgement: Judgement) -> Suspect:
    """A verdict's series as a suspect, whatever the verdict."""
    slower = judgement.ratio is None or judgement.ratio >= 1
    return Suspect(judgement, ChangeKind.REGRESSION, Direction.SLOWER if slower else Direction.FASTER, judgement.reason)


def _suspects(
    request: ConfirmRequest, run: int, judgements: Sequence[Judgement], devices: Mapping[str, DeviceInfo]
) -> list[Suspect]:
    asked = [one for one in judgements if (one.series.case.id, one.series.metric) == (request.case, request.metric)]
    judged = [one for one in asked if one.baseline_run is not None and one.candidate_run is not None and one.ratio]
    if not judged:
        raise NotMeasuredError(
            f"run {run} compared no {request.metric} of {request.case} with a baseline",
            cure=f"perfsvc show '{request.case}'",
        )
    here = [_suspect(one) for one in judged if one.series.device in devices]
    if not here:
        where = ", ".join(dict.fromkeys(f"{one.series.device_model} ({one.series.device})" for one in judged))
        raise NotMeasuredError(
            f"run {run} measured {request.case} on {where}, which is none of the devices asked for",
            cure="measure it again where it was measured: --device",
        )
    return here
