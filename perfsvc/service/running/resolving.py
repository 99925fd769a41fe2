"""What a request comes to: the devices, their cases, and what was learnt of the cases' inputs on the way."""

from collections.abc import Mapping
from dataclasses import dataclass

from perfsvc import build, suite
from perfsvc.device.find import find, why_no_gpu
from perfsvc.measure.host.input_prefetcher import MOST_THREADS
from perfsvc.measure.protocol import shared_arrays
from perfsvc.model import DeviceInfo
from perfsvc.service.judging import policy
from perfsvc.service.progress import Progress
from perfsvc.service.running.request import RunRequest
from perfsvc.service.running.targets import Target, choose
from perfsvc.suite import Inputs, KnownShapes, Suite


@dataclass(frozen=True, slots=True)
class Resolved:
    """A request with what it means on this machine; nothing of it is compiled, and no device is open.

    Attributes:
        devices: by UUID.
        found: the suite, with what is wrong in it.
        inputs: what was made of the cases' inputs already.
        targets: the devices, each with its cases.
    """

    request: RunRequest
    devices: Mapping[str, DeviceInfo]
    found: Suite
    inputs: Inputs
    targets: tuple[Target, ...]


def resolve(request: RunRequest, progress: Progress) -> Resolved:
    """Finds the devices and the cases that a request means.

    Raises:
        UsageError: a selection matches nothing, or the suite is empty.
        InfrastructureError: no device, or no compiler for one.
    """
    devices = find(request.devices)
    if "auto" in request.devices and (reason := why_no_gpu()):
        progress.say(f"measuring on the CPU device, for there is no GPU to use: {reason}")
    found = suite.discover(request.suite)
    if not found.problems:  # what cannot be read may well have the cases
        for rule in policy.idle(request.threshold, [listed.case for listed in found.cases]):
            progress.say(f"{rule} takes no case of the suite: see perfsvc list")
    known = KnownShapes(build.default_folder() / "shapes")
    inputs = Inputs(keep_bytes=shared_arrays.budget_bytes(), threads=MOST_THREADS, known=known)
    targets = choose(found, devices, request.selection, request.points, inputs)
    return Resolved(request, {device.uuid: device for device in devices}, found, inputs, targets)
