"""Groups: several GPUs of one model that a case uses at once, as one device."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Self, TypeVar

import numpy as np

from perfsvc.device.protocol import Device, Reduction
from perfsvc.model import JOINS_GPUS, DeviceInfo

T = TypeVar("T")

NVLINK, PCIE, HOST_MEMORY = "NVLink", "PCIe", "host memory"
INTERCONNECTS = (NVLINK, PCIE, HOST_MEMORY)
"""What connects two GPUs, the fastest first. ``host memory`` means that neither can access the memory of the other, so
that copies take the way through the memory of the host."""

Interconnect = Callable[[str, str], str]
"""Returns what connects two GPUs, given by their UUIDs; empty if it is unknown."""


def group(members: Sequence[DeviceInfo], interconnect: str = "") -> DeviceInfo:
    """Return the description of a group; its numbers are those of its first GPU, the lead."""
    lead = members[0]
    specs = [lead.spec, *(member.spec.removeprefix(f"{member.kind}:") for member in members[1:])]
    return replace(
        lead,
        spec=JOINS_GPUS.join(specs),
        uuid=JOINS_GPUS.join(member.uuid for member in members),
        model=f"{len(members)} × {lead.model}",
        interconnect=interconnect,
    )


def best_group(devices: Sequence[DeviceInfo], gpus: int, interconnect: Interconnect) -> DeviceInfo:
    """Return the group of ``gpus`` devices whose slowest connection is the fastest; the first of several such groups.

    Args:
        devices: devices of one model, at least ``gpus``.
        gpus: the size of the group.
        interconnect: what connects two of the devices.
    """
    # Many groups share a pair, and each question opens NVML.
    between = {pair: interconnect(pair[0].uuid, pair[1].uuid) for pair in itertools.combinations(devices, 2)}

    def slowest(members: tuple[DeviceInfo, ...]) -> str:
        return max((between[pair] for pair in itertools.combinations(members, 2)), key=_rank, default="")

    groups = {members: slowest(members) for members in itertools.combinations(devices, gpus)}
    best = min(groups, key=lambda members: _rank(groups[members]))
    return group(best, groups[best])


def _rank(interconnect: str) -> int:
    """Return the position of a connection in ``INTERCONNECTS``; an unknown one comes last."""
    return INTERCONNECTS.index(interconnect) if interconnect in INTERCONNECTS else len(INTERCONNECTS)


class OneDevice:
    """The part of a ``Device`` that concerns groups, for a device that is no group: all its memory is one memory."""

    def on(self, gpu: int) -> Self:  # noqa: ARG002 - it has one GPU
        """Return the device itself."""
        return self

    def fork(self) -> None:
        """Do nothing: there is no other GPU."""

    def join(self) -> None:
        """Do nothing: there is no other GPU."""

    def require_access(self, gpu: int, other: int) -> None:
        """Do nothing: there is no other GPU."""

    def peer_copy(self: Device, target: tuple[int, int], source: tuple[int, int], nbytes: int) -> None:
        """Copy from one address to another."""
        self.copy(target[1], source[1], nbytes)

    def all_reduce(
        self: Device,
        sources: Sequence[int],
        targets: Sequence[int],
        dtype: str,
        count: int,
        operation: Reduction,  # noqa: ARG002 - one array is its own sum, minimum and maximum
    ) -> None:
        """Copy the only array."""
        self.copy(targets[0], sources[0], count * np.dtype(dtype).itemsize)
