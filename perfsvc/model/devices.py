"""Where cases are timed: devices, their environments and conditions, and where a run comes from."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Literal


class Slowdown(StrEnum):
    """Why a GPU lowered its clocks during a batch."""

    POWER_CAP = "power cap"  # the load itself reached the power limit; recorded, never a reason to reject a batch
    THERMAL = "thermal slowdown"  # the driver lowered them at the GPU's temperature limit
    HARDWARE = "hardware slowdown"  # the GPU lowered them: it is too hot, or its power supply asked for it


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """A device as it describes itself; a value that it does not report is zero or empty.

    Attributes:
        kind: ``host`` is the processor of a machine on which another tool measured.
        spec: the value of ``--device`` that selects exactly this device (``cuda:GPU-5e…``, ``cpu``,
            ``fake:script.json``); empty for a device on which another tool measured.
        target: what binaries are built for (``sm_90``, ``cpu-x86_64``, ``fake``).
    """

    kind: Literal["cuda", "cpu", "fake", "host"]
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


@dataclass(frozen=True, slots=True)
class Environment:
    """What must stay the same for times to be comparable; a change starts a new segment of a series.

    Attributes:
        places: at how many places of its arrays a case is measured (``--places``). A case without room is measured at
            one place in any environment.
    """

    driver: str = ""
    toolkit: str = ""
    power_limit_w: float = 0.0
    places: int = 1

    def changes_to(self, new: "Environment") -> tuple[str, ...]:
        """Return what differs in a new environment, such as ``driver 575.57 → 580.95``."""
        parts = (
            ("driver", self.driver, new.driver),
            ("toolkit", self.toolkit, new.toolkit),
            ("power limit", f"{self.power_limit_w:g} W", f"{new.power_limit_w:g} W"),
            ("places of arrays", str(self.places), str(new.places)),
        )
        return tuple(
            f"{name} {before or 'none'} → {after or 'none'}" for name, before, after in parts if before != after
        )


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
class Peak:
    """The measured peak bandwidth of a device's memory, for a copy (reading and writing) and for reading alone."""

    copy_bytes_per_s: float
    read_bytes_per_s: float

    @property
    def best_bytes_per_s(self) -> float:
        """The higher of both: the limit of the device."""
        return max(self.copy_bytes_per_s, self.read_bytes_per_s)


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
