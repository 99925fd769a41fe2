"""Where cases are timed: devices, their environments and conditions, and where a run comes from."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Final, Literal, get_args

DeviceKind = Literal["cuda", "cpu", "fake", "host"]
"""What a device is; ``host`` is the processor of a machine on which another tool measured."""

DEVICE_KINDS: Final = frozenset(get_args(DeviceKind))


class Slowdown(StrEnum):
    """Why a GPU lowered its clocks during a batch."""

    POWER_CAP = "power cap"  # the load itself reached the power limit; recorded, never a reason to reject a batch
    THERMAL = "thermal slowdown"  # the driver lowered them at the GPU's temperature limit
    HARDWARE = "hardware slowdown"  # the GPU lowered them: it is too hot, or its power supply asked for it


JOINS_GPUS = "+"
"""Joins the UUIDs of the GPUs of a group."""


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """A device as it describes itself; a value that it does not report is zero or empty.

    Several GPUs of one model can be one device: a group, on which cases with ``gpus=`` run. Its UUID joins the UUIDs of
    its GPUs with ``+``, its numbers are those of one GPU, and its lead is the first GPU.

    Attributes:
        spec: the value of ``--device`` that selects exactly this device (``cuda:GPU-5e…``, ``cpu``,
            ``fake:script.json``); empty for a device on which another tool measured.
        target: what binaries are built for (``sm_90``, ``cpu-x86_64``, ``fake``).
        interconnect: what connects the GPUs of a group: ``NVLink``, ``PCIe``, or ``host memory`` if no GPU can access
            the memory of another one.
    """

    kind: DeviceKind
    spec: str
    uuid: str
    model: str
    target: str
    compute_capability: str = ""
    multiprocessors: int = 0
    clock_hz: float = 0.0
    memory_clock_hz: float = 0.0
    memory_bytes: int = 0
    l2_bytes: int = 0
    shared_bytes_per_block: int = 0
    registers_per_block: int = 0
    warp_size: int = 0
    driver: str = ""
    power_limit_w: float = 0.0
    interconnect: str = ""

    @property
    def members(self) -> tuple[str, ...]:
        """The UUIDs of the GPUs of a group, the lead first; only its own UUID for any other device."""
        return tuple(self.uuid.split(JOINS_GPUS))

    @property
    def gpus(self) -> int:
        """How many GPUs the device has; 1 unless it is a group."""
        return len(self.members)


@dataclass(frozen=True, slots=True)
class Environment:
    """What must stay the same for times to be comparable; a change starts a new segment of a series.

    Attributes:
        places: at how many places of its arrays a case is measured (``--places``). A case without room is measured at
            one place in any environment.
        parts: names and values of further parts, which the setting ``segments.parts`` chose from the full environment;
            sorted by name.
    """

    driver: str = ""
    toolkit: str = ""
    power_limit_w: float = 0.0
    places: int = 1
    parts: tuple[tuple[str, str], ...] = ()

    def changes_to(self, new: "Environment") -> tuple[str, ...]:
        """Return what differs in a new environment, such as ``driver 575.57 → 580.95``."""
        parts = (
            ("driver", self.driver, new.driver),
            ("toolkit", self.toolkit, new.toolkit),
            ("power limit", f"{self.power_limit_w:g} W", f"{new.power_limit_w:g} W"),
            ("places of arrays", str(self.places), str(new.places)),
            *((each.name, each.before, each.after) for each in _differing(dict(self.parts), dict(new.parts))),
        )
        return tuple(
            f"{name} {before or 'none'} → {after or 'none'}" for name, before, after in parts if before != after
        )


PARTS: Mapping[str, str] = {
    "gpu.application_memory_clock": "the memory clock that programs get (`nvidia-smi -ac`)",
    "gpu.application_sm_clock": "the clock of the multiprocessors that programs get (`nvidia-smi -ac`)",
    "gpu.compute_mode": "`default`, `exclusive process` or `prohibited`",
    "gpu.ecc": "whether the memory corrects errors: `on` or `off`",
    "gpu.interconnect": "what connects the GPUs of a group: `NVLink`, `PCIe` or `host memory`",
    "gpu.mig": "whether the GPU is divided into instances: `on` or `off`",
    "gpu.nvlinks": "the number of active NVLink connections",
    "gpu.pcie_generation": "the fastest PCIe generation that the GPU and its slot support",
    "gpu.pcie_width": "the number of PCIe lanes",
    "gpu.persistence": "whether the driver stays loaded without programs: `on` or `off`",
    "gpu.power_limit": "the power limit",
    "gpu.vbios": "the version of the GPU's firmware",
    "host.cpu": "the model of the processor",
    "host.cpu_limit": "how many processors' time the container or cgroup may use",
    "host.cpus": "the number of processors that perfsvc may use",
    "host.governor": "how the processor chooses its clock, such as `performance`",
    "host.kernel": "the version of the Linux kernel",
    "host.memory_limit": "how much memory the container or cgroup may use",
    "host.name": "the name of the host",
    "host.numa_nodes": "the number of NUMA nodes",
    "run.places": "at how many places of its arrays a case is measured",
    "software.driver": "the version of the GPU's driver",
    "software.perfsvc": "the version of perfsvc",
    "software.python": "the version of Python",
    "software.toolkit": "the version of the compiler",
    "package.*": "the version of a Python package",
    "variable.*": "the value of an environment variable",
}
"""The names of the parts of a full environment, and what they are."""
ALWAYS = frozenset({"gpu.power_limit", "run.places", "software.driver", "software.toolkit"})
"""The parts that every ``Environment`` has."""


@dataclass(frozen=True, slots=True)
class FullEnvironment:
    """Everything that perfsvc records about the GPUs, the host and the software of a run, as texts by name (``PARTS``).

    A part that the system does not report is absent.

    Attributes:
        common: the parts that all devices of the run share.
        devices: the further parts of each device, by UUID.
    """

    common: Mapping[str, str] = field(default_factory=dict)
    devices: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def chosen(self, device: str, patterns: Iterable[str]) -> tuple[tuple[str, str], ...]:
        """Return the names and values of a device's parts that match one of some globs, sorted, without ``ALWAYS``."""
        parts = {**self.common, **self.devices.get(device, {})}
        globs = tuple(patterns)
        names = (name for name in sorted(parts.keys() - ALWAYS) if any(fnmatchcase(name, glob) for glob in globs))
        return tuple((name, parts[name]) for name in names)


@dataclass(frozen=True, slots=True)
class Difference:
    """A part in which two full environments differ; ``before`` or ``after`` is None if the part is absent there.

    Attributes:
        devices: the UUIDs of the devices with this difference; empty for a part that all devices share.
    """

    name: str
    before: str | None
    after: str | None
    devices: tuple[str, ...] = ()


def differences(before: FullEnvironment, after: FullEnvironment) -> tuple[Difference, ...]:
    """Return the parts in which two full environments differ, sorted by name.

    Only devices that both have are compared. If each has one device and the devices differ, these two are compared.
    """
    pairs = [(uuid, uuid) for uuid in after.devices if uuid in before.devices]
    if not pairs and len(before.devices) == len(after.devices) == 1:
        pairs = list(zip(before.devices, after.devices, strict=True))
    changed: dict[tuple[str, str | None, str | None], list[str]] = {}
    for old, new in pairs:
        for each in _differing(before.devices[old], after.devices[new]):
            changed.setdefault((each.name, each.before, each.after), []).append(new)
    of_devices = [Difference(*change, devices=tuple(sorted(uuids))) for change, uuids in changed.items()]
    return tuple(sorted([*_differing(before.common, after.common), *of_devices], key=lambda each: each.name))


def _differing(before: Mapping[str, str], after: Mapping[str, str]) -> list[Difference]:
    """Return the parts that differ, sorted by name."""
    return [
        Difference(name, before.get(name), after.get(name))
        for name in sorted({*before, *after})
        if before.get(name) != after.get(name)
    ]


@dataclass(frozen=True, slots=True)
class Conditions:
    """The state of a GPU during a batch; a value that the GPU does not report is None or empty.

    Attributes:
        sm_clock_hz: the true clock: cycles over nanoseconds, both counted on the device.
        memory_clock_hz: the memory clock; the driver reports it and all values below.
        temperature_c: temperature of the GPU.
        power_w: power drawn by the whole card.
        slowdowns: why the clocks were lowered during the batch.
        ecc_errors: uncorrectable memory errors since the previous batch.
        xids: fault numbers that the driver reported since the previous batch.
        others: ids of other processes that used the GPU.
    """

    sm_clock_hz: float | None = None
    memory_clock_hz: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    slowdowns: tuple[Slowdown, ...] = ()
    ecc_errors: int = 0
    xids: tuple[int, ...] = ()
    others: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where a run comes from: commit, host, versions, command line.

    Attributes:
        commit: the commit of the suite's repository; empty outside a repository, like ``dirty`` and ``branch``.
        dirty: True if the repository had uncommitted changes.
        scope: how the cases were selected. Runs with equal scopes measure the same cases; empty if unknown.
    """

    started: datetime
    command_line: str
    suite: str
    commit: str = ""
    dirty: bool = False
    branch: str = ""
    host: str = ""
    cpu: str = ""
    perfsvc_version: str = ""
    python_version: str = ""
    packages: Mapping[str, str] = field(default_factory=dict)
    seed: int = 0
    replicas: int = 0
    label: str = ""
    scope: str = ""
