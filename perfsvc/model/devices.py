"""Where it is timed: devices, their environments, what they are like, and where a run comes from."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Literal


class Slowdown(StrEnum):
    """Why a GPU lowered its clocks while a batch ran."""

    POWER_CAP = "power cap"  # the load itself reached the power limit: recorded, never rejected
    THERMAL = "thermal slowdown"  # the driver's, at the GPU's temperature limit
    HARDWARE = "hardware slowdown"  # the GPU's own: too hot, or its power supply asked for it


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """One device as it describes itself; zero and empty where it cannot say.

    ``spec`` is what ``--device`` takes to name exactly this one (``cuda:GPU-5e…``, ``cpu``, ``fake:script.json``);
    ``target`` what binaries are built for (``sm_90``, ``cpu-x86_64``, ``fake``).
    """

    kind: Literal["cuda", "cpu", "fake"]
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
    """What must stay the same for times to be comparable without a thought: a change starts a segment of a series."""

    driver: str = ""
    toolkit: str = ""
    power_limit_w: float = 0.0


@dataclass(frozen=True, slots=True)
class Conditions:
    """What a GPU was like while a batch ran; None and empty where it cannot say.

    Attributes:
        sm_clock_hz: the true clock, counted on the device: its cycles over its nanoseconds.
        memory_clock_hz: as the driver says, like all that follows.
        temperature_c: of the GPU.
        power_w: drawn by the whole GPU.
        slowdowns: why its clocks were lowered meanwhile, if they were.
        ecc_errors: errors of the memory that could not be corrected, new since the batch before.
        xids: faults that the driver reported, new since the batch before.
        others: ids of other processes that worked on the GPU.
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
    """What a GPU's memory was measured to move: bytes read and written by a copy, bytes read by a read alone."""

    copy_bytes_per_s: float
    read_bytes_per_s: float

    @property
    def best_bytes_per_s(self) -> float:
        """The better of both: the GPU's own limit."""
        return max(self.copy_bytes_per_s, self.read_bytes_per_s)


@dataclass(frozen=True, slots=True)
class Provenance:
    """Everything a run knows about where it came from."""

    started: datetime
    command_line: str
    suite: str
    commit: str = ""  # of the suite's repository; empty outside one
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
    scope: str = ""  # how its cases were chosen; equal scopes mean the same cases, empty is not known
