"""Form groups of a run's GPUs for the cases that use several GPUs."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from perfsvc.device.find import interconnect_of
from perfsvc.device.groups import best_group, group
from perfsvc.model import JOINS_GPUS, DeviceInfo
from perfsvc.suite import CaseSpec

CPU = "cpu"
LEAST_GPUS = 2
"""The CPU device stands in for as many GPUs as a case needs, and for two if the case uses all of them."""


def alike(device: DeviceInfo, devices: Sequence[DeviceInfo]) -> list[DeviceInfo]:
    """Return the single devices of a device's kind and model, in their order."""
    return [other for other in devices if other.gpus == 1 and (other.kind, other.model) == (device.kind, device.model)]


def all_gpus(device: DeviceInfo, devices: Sequence[DeviceInfo]) -> int:
    """Return how many GPUs ``gpus="all"`` means for a device; at least two, as one GPU is no group."""
    return max(device.gpus, LEAST_GPUS if device.kind == CPU else len(alike(device, devices)), LEAST_GPUS)


def divide(
    specs: Sequence[CaseSpec], lead: DeviceInfo, devices: Sequence[DeviceInfo]
) -> tuple[list[CaseSpec], Mapping[DeviceInfo, list[CaseSpec]]]:
    """Return the cases of a single device, and the groups that it leads with their cases.

    The first device of a model leads the groups of this model. It also keeps the cases that need more GPUs than the run
    has, so that their absence is reported. If the user has named a group, no other group is formed.

    Args:
        specs: all cases, with ``gpus="all"`` resolved for the model.
        lead: the device.
        devices: all devices of the run.
    """
    own = [spec for spec in specs if spec.gpus == 1]
    same = alike(lead, devices)
    if lead.uuid != same[0].uuid or any(device.gpus > 1 for device in devices):
        return own, {}
    grouped: dict[int, list[CaseSpec]] = defaultdict(list)
    for spec in specs:
        if spec.gpus > 1:
            grouped[spec.gpus].append(spec)
    of_groups = {}
    for gpus, its in sorted(grouped.items()):
        if lead.kind == CPU:
            of_groups[group([lead] * gpus)] = its
        elif gpus <= len(same):
            of_groups[best_group(same, gpus, interconnect_of(lead.kind))] = its
        else:
            own += its
    return own, of_groups


def with_groups(devices: Sequence[DeviceInfo], uuids: Sequence[str]) -> Iterator[DeviceInfo]:
    """Yield the devices, and each group among ``uuids`` whose GPUs are all here."""
    yield from devices
    here = {device.uuid: device for device in devices}
    for uuid in dict.fromkeys(uuids):
        members = [here[member] for member in uuid.split(JOINS_GPUS) if member in here]
        if JOINS_GPUS in uuid and uuid not in here and len(members) == len(uuid.split(JOINS_GPUS)):
            yield best_group(members, len(members), interconnect_of(members[0].kind))
