"""What the page of the fleet shows: hosts and their GPUs, as frozen values, and as texts."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType

from markupsafe import Markup

from perfsvc import units
from perfsvc.model import DeviceInfo, Environment, Peak
from perfsvc.report import wording
from perfsvc.report.pages.spark import spark


class Health(StrEnum):
    """How a GPU was in a night, the worst first: a cell shows the worst, its text shows all."""

    MISSING = "missing"
    XID = "Xid"
    ECC = "errors of its memory"
    SLOWED = "slowed"
    REJECTED = "rejected batches"
    SHARED = "shared"
    OK = "ok"


SIGNS: Mapping[Health, str] = MappingProxyType(
    {
        Health.MISSING: "–",
        Health.XID: "X",
        Health.ECC: "E",
        Health.SLOWED: "S",
        Health.REJECTED: "R",
        Health.SHARED: "P",
        Health.OK: "·",
    }
)
"""The text of a cell, so that its colour is not the only sign."""

LOOKS: Mapping[Health, str] = MappingProxyType(
    {
        Health.MISSING: "gone",
        Health.XID: "bad",
        Health.ECC: "bad",
        Health.SLOWED: "doubtful",
        Health.REJECTED: "doubtful",
        Health.SHARED: "doubtful",
        Health.OK: "well",
    }
)
"""The class of a cell."""

EXPLAINED: Mapping[Health, str] = MappingProxyType(
    {
        Health.MISSING: "the night did not measure on the GPU",
        Health.XID: "the driver reported a fault",
        Health.ECC: "errors of the memory that could not be corrected",
        Health.SLOWED: "the GPU lowered its clock because of heat or its power supply",
        Health.REJECTED: "disturbed batches were measured again",
        Health.SHARED: "other processes used the GPU",
        Health.OK: "none of these",
    }
)

MOST_TROUBLED = 30
"""How many of the newest nights with trouble a GPU lists."""


@dataclass(frozen=True, slots=True)
class NightHealth:
    """A GPU in one night.

    Attributes:
        started: when the night or the run began.
        run: its run; None if the night made none.
        night: the night; None for a run outside of nights.
        states: all that was wrong, the worst first; ``ok`` alone if nothing was.
        detail: the same in words; empty if nothing was wrong.
    """

    started: datetime
    run: int | None
    night: int | None
    states: tuple[Health, ...]
    detail: str = ""

    @property
    def worst(self) -> Health:
        """The worst state."""
        return self.states[0]

    @property
    def name(self) -> str:
        """The run or the night, and its day: ``run 12, 2026-03-12``."""
        what = f"run {self.run}" if self.run is not None else f"night {self.night}"
        return f"{what}, {self.started:%Y-%m-%d}"

    @property
    def text(self) -> str:
        """The night and all that was wrong."""
        return f"{self.name}: {self.detail or self.worst.value}"


@dataclass(frozen=True, slots=True)
class SiblingRatio:
    """A GPU in one night against the other GPUs of its model, over the cases whose binaries they share.

    Attributes:
        run: the run of the GPU.
        ratio: the median over the cases of the GPU's time over the median of its siblings' times.
        low: the lower quartile over the cases.
        high: the upper quartile.
        cases: how many cases they share.
        siblings: how many siblings measured any of them.
    """

    run: int
    ratio: float
    low: float
    high: float
    cases: int
    siblings: int


@dataclass(frozen=True, slots=True)
class GpuView:
    """A GPU of a host.

    Attributes:
        info: how it last described itself.
        seen: when a run last measured on it; None if no run on the site did.
        run: the newest run that measured on it; None likewise.
        missing: the number of the active finding about its absence; None while it is present.
        environment: driver and power limit in that run; None if unknown.
        parts: the parts of the full environment of that run which concern the GPU, by name.
        sm_clock_hz: the lowest clock of a measurement of that run; None if unknown, like the next two.
        temperature_c: the highest temperature.
        power_w: the highest power.
        health: in the newest nights, oldest first.
        peaks: its measured peaks, oldest first.
        siblings: in the newest nights, the newest first; empty if it has no siblings.
        slower: whether it is slower than its siblings by the rule of the page.
        elsewhere: the host on which a later run measured on it; empty if this host is its last.
    """

    info: DeviceInfo
    seen: datetime | None = None
    run: int | None = None
    missing: int | None = None
    environment: Environment | None = None
    parts: Mapping[str, str] = field(default_factory=dict)
    sm_clock_hz: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    health: tuple[NightHealth, ...] = ()
    peaks: tuple[Peak, ...] = ()
    siblings: tuple[SiblingRatio, ...] = ()
    slower: bool = False
    elsewhere: str = ""

    @property
    def facts(self) -> list[tuple[str, str]]:
        """The name and the value of each known fact of its newest run."""
        driver = self.environment.driver if self.environment else ""
        limit_w = self.environment.power_limit_w if self.environment else 0.0
        clock = wording.or_dash(self.sm_clock_hz, units.frequency) if self.sm_clock_hz else ""
        most = f" of {units.frequency(self.info.clock_hz)}" if clock and self.info.clock_hz else ""
        power = f"{self.power_w:.0f} W" if self.power_w is not None else ""
        facts = (
            ("driver", driver),
            ("memory", units.size(self.info.memory_bytes) if self.info.memory_bytes else ""),
            ("lowest clock", f"{clock}{most}"),
            ("hottest", f"{self.temperature_c:.0f} °C" if self.temperature_c is not None else ""),
            ("most power", f"{power}{f' of {limit_w:g} W' if limit_w else ''}" if power else ""),
            ("power limit", f"{limit_w:g} W" if limit_w and not power else ""),
            *((name, self.parts.get(part, "")) for part, name in STATE_PARTS.items()),
        )
        return [(name, value) for name, value in facts if value]

    @property
    def counts(self) -> str:
        """The states in words with their numbers: ``28 ok, 2 slowed``."""
        numbers = Counter(night.worst for night in self.health)
        ordered = [Health.OK, *(state for state in Health if state is not Health.OK)]
        return ", ".join(f"{numbers[state]} {state.value}" for state in ordered if numbers[state])

    @property
    def troubled(self) -> list[NightHealth]:
        """The newest nights in which something was wrong, the newest first."""
        return [night for night in reversed(self.health) if night.worst is not Health.OK][:MOST_TROUBLED]

    @property
    def bandwidths(self) -> list[tuple[str, str, Markup]]:
        """The measured peaks of copying and of reading: the name, the newest value, and a sparkline of all."""
        rows = (
            ("copy", [peak.copy_bytes_per_s for peak in self.peaks]),
            ("read", [peak.read_bytes_per_s for peak in self.peaks]),
        )
        label = f"measured in {units.count(len(self.peaks), 'run')}"
        return [(name, units.rate(rates[-1]), spark(rates, label=f"{name}, {label}")) for name, rates in rows if rates]


STATE_PARTS: Mapping[str, str] = MappingProxyType(
    {
        "gpu.ecc": "ECC",
        "gpu.mig": "MIG",
        "gpu.persistence": "persistence",
        "gpu.compute_mode": "compute mode",
        "gpu.application_sm_clock": "set clock",
        "gpu.vbios": "VBIOS",
    }
)
"""The parts of a full environment that describe the state of a GPU and that no other fact shows, with their names."""


@dataclass(frozen=True, slots=True)
class HostView:
    """A host with its GPUs.

    Attributes:
        name: its name; empty if the runs did not record it.
        seen: when its newest night or run began; None if unknown.
        night: its newest night; None without one.
        overdue: the number of the active finding about its overdue night; None if no night is overdue.
        gpus: its GPUs, in the order in which they were first stored.
    """

    name: str
    seen: datetime | None
    night: int | None = None
    overdue: int | None = None
    gpus: tuple[GpuView, ...] = ()


@dataclass(frozen=True, slots=True)
class Fleet:
    """All hosts with GPUs, by name.

    Attributes:
        threshold: how much slower than many siblings a GPU must be to count as slower, as a fraction.
        single: how much slower than a single sibling.
        agreeing: in how many nights the ratio must be beyond it.
        nights: how many of the newest nights are looked at.
        others: the models of the other devices that the runs measured on, such as the CPU device. Such devices
            are not listed.
    """

    hosts: tuple[HostView, ...] = ()
    threshold: float = 0.0
    single: float = 0.0
    agreeing: int = 0
    nights: int = 0
    others: tuple[str, ...] = ()

    @property
    def gpus(self) -> list[GpuView]:
        """The GPUs of all hosts."""
        return [gpu for host in self.hosts for gpu in host.gpus]

    @property
    def slower(self) -> list[GpuView]:
        """The GPUs that are slower than their siblings."""
        return [gpu for gpu in self.gpus if gpu.slower]

    @property
    def has_siblings(self) -> bool:
        """Whether any GPU was compared with its siblings."""
        return any(gpu.siblings for gpu in self.gpus)
