"""What the driver's management library (NVML) knows of a GPU. The only importer of ``pynvml``.

Nothing here raises: what this GPU, driver or container cannot say is empty, zero or None.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from perfsvc.device.neighbours import Neighbours
from perfsvc.model import Conditions, Slowdown

T = TypeVar("T")

INSTANCE: Final = "MIG-"
"""How the UUID of a MIG instance begins."""

_WATTS_PER_MILLIWATT = 1e-3
_JOULES_PER_MILLIJOULE = 1e-3
_HZ_PER_MHZ = 1e6
_WHOLE_BOARD = 0xFFFFFFFF  # the instance of an event that concerns none
_NO_HANDLES: Final[tuple[Any, Any]] = (None, None)
_EVENTS = 64  # of a GPU that is falling apart, no more in one look

_REASONS: Final = (
    ("nvmlClocksEventReasonSwPowerCap", Slowdown.POWER_CAP),
    ("nvmlClocksEventReasonSwThermalSlowdown", Slowdown.THERMAL),
    ("nvmlClocksEventReasonHwSlowdown", Slowdown.HARDWARE),
    ("nvmlClocksEventReasonHwThermalSlowdown", Slowdown.HARDWARE),
    ("nvmlClocksEventReasonHwPowerBrakeSlowdown", Slowdown.HARDWARE),
)
"""Of the reasons for the present clocks those that slow a load down: an idle GPU, clocks that were set on purpose
and GPUs in step are none."""

_COUNTERS: Final = (
    ("NVML_FI_DEV_PERF_POLICY_POWER", Slowdown.POWER_CAP),
    ("NVML_FI_DEV_PERF_POLICY_THERMAL", Slowdown.THERMAL),
    ("NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN", Slowdown.THERMAL),
    ("NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN", Slowdown.HARDWARE),
    ("NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN", Slowdown.HARDWARE),
)
"""Counters of the time spent slowed down: they tell what happened between two looks. The first two are old, and the
same as NVML's violation status; the others came with driver 570."""

_POWER: Final = "NVML_FI_DEV_POWER_INSTANT"
_ECC: Final = "NVML_FI_DEV_ECC_DBE_VOL_TOTAL"

_NOTHING_NOW: Final = (
    "NVML_SUCCESS",  # raised by the package where a list is empty
    "NVML_ERROR_TIMEOUT",
    "NVML_ERROR_NOT_FOUND",
    "NVML_ERROR_NO_DATA",
    "NVML_ERROR_INSUFFICIENT_SIZE",
    "NVML_ERROR_IN_USE",
    "NVML_ERROR_NOT_READY",
)
"""Refusals that say nothing about the next time."""

_MEMBERS: Final = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""Of the union that holds a field's value, in the order of NVML's value types."""


# --- what is here ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Installed:
    """A GPU, or an instance of one in MIG mode.

    Attributes:
        uuid: its own, ``GPU-…`` or ``MIG-…``.
        board: the UUID of the GPU that it is, or is a part of.
        ordinal: that GPU's place in the order of the PCI bus, which is CUDA's with ``CUDA_DEVICE_ORDER=PCI_BUS_ID``.
    """

    uuid: str
    board: str
    ordinal: int

    @property
    def instance(self) -> bool:
        """Whether it is a part of a GPU."""
        return self.uuid.startswith(INSTANCE)


def driver_version() -> str:
    """The driver's version as nvidia-smi prints it (``580.159.04``); empty where NVML cannot say."""
    return _ask(lambda nvml: str(nvml.nvmlSystemGetDriverVersion()), otherwise="")


def power_limit_w(uuid: str) -> float:
    """The power limit that is set on a GPU (of an instance: on its GPU), in watts; zero where NVML cannot say."""

    def limit(nvml: Any) -> float:
        _, board = _handles(nvml, uuid)
        return float(nvml.nvmlDeviceGetPowerManagementLimit(board)) * _WATTS_PER_MILLIWATT

    return _ask(limit, otherwise=0.0)


def installed() -> list[Installed]:
    """Every GPU that NVML shows, in its order; one in MIG mode as its instances, which may be none."""

    def devices(nvml: Any) -> list[Installed]:
        found = []
        for ordinal in range(nvml.nvmlDeviceGetCount()):
            with contextlib.suppress(nvml.NVMLError):  # a GPU that is lost is no device, and takes no other with it
                board = nvml.nvmlDeviceGetHandleByIndex(ordinal)
                identity = str(nvml.nvmlDeviceGetUUID(board))
                found += [Installed(uuid, identity, ordinal) for uuid in _parts(nvml, board, identity)]
        return found

    return _ask(devices, otherwise=[])


def tells(uuid: str) -> dict[str, bool]:
    """What NVML can be asked about a GPU, and whether this GPU, driver and container answer it."""
    with contextlib.closing(Board(uuid)) as board:
        return board.tells()


def _parts(nvml: Any, board: Any, identity: str) -> Iterator[str]:
    """The UUIDs of a GPU's instances where it is in MIG mode, else its own."""
    try:
        current, _ = nvml.nvmlDeviceGetMigMode(board)
    except nvml.NVMLError:  # a GPU that has no such cache state
        current = nvml.NVML_DEVICE_MIG_DISABLE
    if current != nvml.NVML_DEVICE_MIG_ENABLE:
        yield identity
        return
    for index in range(nvml.nvmlDeviceGetMaxMigDeviceCount(board)):
        with contextlib.suppress(nvml.NVMLError):  # no instance has this index, or this container does not get it
            yield str(nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetMigDeviceHandleByIndex(board, index)))


def _handles(nvml: Any, uuid: str) -> tuple[Any, Any]:
    """NVML's handles of a device and of the GPU that it is, or is a part of."""
    device = nvml.nvmlDeviceGetHandleByUUID(uuid)
    instance = uuid.startswith(INSTANCE)
    return device, nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device) if instance else device


def _ask(question: Callable[[Any], T], *, otherwise: T) -> T:
    """The answer of NVML, or ``otherwise`` where its package, its library or the answer is not to be had."""
    with contextlib.closing(_Nvml()) as nvml:
        answer = nvml.ask("", question)
    return otherwise if answer is None else answer


# --- one GPU, batch after batch ------------------------------------------------------------------------------------


class _Nvml:
    """NVML, opened once; what it refuses for good is not asked again."""

    def __init__(self) -> None:
        self._library: Any = None
        self._refused: set[str] = set()
        self._nothing_now: frozenset[int] = frozenset()
        try:
            import pynvml
        except ImportError:
            return
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlInit()
            self._library = pynvml
            self._nothing_now = frozenset(self.numbers(_NOTHING_NOW).values())

    def numbers(self, names: Iterable[str]) -> dict[str, int]:
        """What NVML's constants stand for; those that are younger than the package are left out."""
        return {name: getattr(self._library, name) for name in names if hasattr(self._library, name)}

    def ask(self, topic: str, question: Callable[[Any], T]) -> T | None:
        """The answer to a question, which is always the same for a topic; None where there is none."""
        if self.refuses(topic):
            return None
        try:
            return question(self._library)
        except AttributeError:  # the call is younger than the package
            self._refused.add(topic)
        except self._library.NVMLError as error:
            if not self.passing(error.value):
                self._refused.add(topic)
        return None

    def refuses(self, topic: str) -> bool:
        """Whether it is of no use to ask that (again)."""
        return self._library is None or topic in self._refused

    def passing(self, code: int) -> bool:
        """Whether a refusal says nothing about the next time."""
        return code in self._nothing_now

    def close(self) -> None:
        """Closes the library; from then on it refuses everything."""
        if self._library is not None:
            with contextlib.suppress(self._library.NVMLError):
                self._library.nvmlShutdown()
            self._library = None


class Board:
    """What one GPU is like, look after look.

    A look stands beside each batch, so it asks little: one call for all counters (time spent slowed down, ECC, power),
    one each for both clocks, the temperature, the reasons for the present clocks, the process utilisation and the
    events; a second one for the processes only where one that is not known yet has worked. What is refused once
    (NVML's ``NOT_SUPPORTED`` and its like) is not asked again. The first look is taken when the GPU is opened, so
    that every later one tells what is new.

    A MIG instance has its own processes and Xids; clocks, temperature, power and slowdowns are those of its GPU,
    whose energy is not the instance's alone and is not told. Only its own instance's processes are others to it.

    Args:
        uuid: of a GPU or an instance. Open it before the process's context is created, or beside that.
    """

    def __init__(self, uuid: str) -> None:
        self._nvml = _Nvml()
        handles = self._nvml.ask("GPU", lambda nvml: _handles(nvml, uuid))
        if handles is None:
            self._nvml.close()
        self._device, self._board = handles or _NO_HANDLES
        self._utilisation_us = 0
        self._neighbours = Neighbours(self._processes, self._worked)  # first, for our context is on its way
        self._whole = not uuid.startswith(INSTANCE)
        self._instance = self._nvml.ask("instance", lambda nvml: nvml.nvmlDeviceGetGpuInstanceId(self._device))
        self._fields = self._nvml.numbers([_POWER, _ECC, *dict(_COUNTERS)])
        self._reasons = self._nvml.numbers(dict(_REASONS))
        self._counted: dict[str, int] = {}
        self._events = self._nvml.ask("event set", self._registered)
        self.read()

    def claim(self) -> None:
        """Says that this process's context exists by now: see ``Neighbours.claim``."""
        self._neighbours.claim()

    def read(self) -> Conditions:
        """What the GPU is like now, and what happened since the last look."""
        counters = self._counters()
        return Conditions(
            sm_clock_hz=self._clock_hz("NVML_CLOCK_SM"),
            memory_clock_hz=self._clock_hz("NVML_CLOCK_MEM"),
            temperature_c=self._temperature_c(),
            power_w=self._power_w(counters),
            slowdowns=self._slowdowns(counters),
            ecc_errors=self._grown(_ECC, counters),
            xids=tuple(self._xids()),
            others=self._neighbours.at_work(),
        )

    def energy_j(self) -> float | None:
        """Joules drawn since the driver was loaded: the difference of two counts. None of an instance."""
        if not self._whole:
            return None
        drawn = self._nvml.ask("energy", lambda nvml: nvml.nvmlDeviceGetTotalEnergyConsumption(self._board))
        return None if drawn is None else drawn * _JOULES_PER_MILLIJOULE

    def tells(self) -> dict[str, bool]:
        """What can be asked, and whether this GPU, driver and container answer it."""
        self.claim()
        now = self.read()
        return {
            "clocks": now.memory_clock_hz is not None,
            "temperature": now.temperature_c is not None,
            "power": now.power_w is not None,
            "slowdowns": not self._nvml.refuses("event reasons") or not self._nvml.refuses("throttle reasons"),
            "slowdown counters": any(name in self._counted for name in dict(_COUNTERS)),
            "ECC errors": _ECC in self._counted,
            "Xids": self._events is not None,
            "energy": self.energy_j() is not None,
            "process utilisation": not self._nvml.refuses("process utilisation"),
        }

    def close(self) -> None:
        """Gives everything back; later looks see nothing."""
        if self._events is not None:
            self._nvml.ask("freeing", lambda nvml: nvml.nvmlEventSetFree(self._events))
            self._events = None
        self._nvml.close()

    def _counters(self) -> dict[str, int]:
        """The fields that this GPU can fill, by name."""
        if not self._fields:
            return {}
        names, numbers = list(self._fields), list(self._fields.values())
        values = self._nvml.ask("counters", lambda nvml: nvml.nvmlDeviceGetFieldValues(self._board, numbers))
        counters = {}
        for name, field in zip(names, values or (), strict=False):
            if field.nvmlReturn == 0:
                counters[name] = int(getattr(field.value, _MEMBERS[field.valueType]))
            elif not self._nvml.passing(field.nvmlReturn):
                del self._fields[name]
        return counters

    def _grown(self, name: str, counters: Mapping[str, int]) -> int:
        """By how much a counter grew since the last look; a driver that was loaded anew began at zero."""
        if name not in counters:
            return 0
        before = self._counted.get(name, counters[name])
        self._counted[name] = counters[name]
        return max(0, counters[name] - before)

    def _clock_hz(self, which: str) -> float | None:
        mhz = self._nvml.ask(which, lambda nvml: nvml.nvmlDeviceGetClockInfo(self._board, getattr(nvml, which)))
        return None if mhz is None else mhz * _HZ_PER_MHZ

    def _temperature_c(self) -> float | None:
        return self._nvml.ask(
            "temperature",
            lambda nvml: float(nvml.nvmlDeviceGetTemperature(self._board, nvml.NVML_TEMPERATURE_GPU)),
        )

    def _power_w(self, counters: Mapping[str, int]) -> float | None:
        """At this instant; where the GPU only has the other one, over its last second."""
        milliwatts = counters.get(_POWER)
        if milliwatts is None:
            milliwatts = self._nvml.ask("power", lambda nvml: nvml.nvmlDeviceGetPowerUsage(self._board))
        return None if milliwatts is None else milliwatts * _WATTS_PER_MILLIWATT

    def _slowdowns(self, counters: Mapping[str, int]) -> tuple[Slowdown, ...]:
        """Those of this instant, and those that a counter saw since the last look."""
        present = self._present_reasons()
        found = {slowdown for name, slowdown in _REASONS if present & self._reasons.get(name, 0)}
        found |= {slowdown for name, slowdown in _COUNTERS if self._grown(name, counters)}
        return tuple(slowdown for slowdown in Slowdown if slowdown in found)

    def _present_reasons(self) -> int:
        """NVML's bits; drivers before 535 know the call by its older name."""
        reasons = self._nvml.ask("event reasons", lambda nvml: nvml.nvmlDeviceGetCurrentClocksEventReasons(self._board))
        if reasons is None:
            reasons = self._nvml.ask(
                "throttle reasons", lambda nvml: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(self._board)
            )
        return int(reasons or 0)

    def _registered(self, nvml: Any) -> Any:
        """An event set that hears of the GPU's Xids."""
        events = nvml.nvmlEventSetCreate()
        try:
            nvml.nvmlDeviceRegisterEvents(self._board, nvml.nvmlEventTypeXidCriticalError, events)
        except nvml.NVMLError:
            nvml.nvmlEventSetFree(events)
            raise
        return events

    def _xids(self) -> Iterator[int]:
        """Those that came since the last look; of an instance, its own and the whole GPU's."""
        for _ in range(_EVENTS if self._events is not None else 0):
            event = self._nvml.ask("events", lambda nvml: nvml.nvmlEventSetWait_v2(self._events, 0))
            if event is None:
                return
            if self._whole or event.gpuInstanceId in {self._instance, _WHOLE_BOARD}:
                yield int(event.eventData)

    def _processes(self) -> frozenset[int] | None:
        listed = self._nvml.ask("processes", lambda nvml: nvml.nvmlDeviceGetComputeRunningProcesses(self._device))
        return None if listed is None else frozenset(int(process.pid) for process in listed)

    def _worked(self) -> frozenset[int] | None:
        """The processes that used multiprocessors since this was asked last; None where NVML does not say."""
        topic = "process utilisation"
        samples = self._nvml.ask(
            topic, lambda nvml: nvml.nvmlDeviceGetProcessUtilization(self._device, self._utilisation_us)
        )
        if samples is None and self._nvml.refuses(topic):
            return None
        new = [sample for sample in samples or () if sample.timeStamp > self._utilisation_us]
        self._utilisation_us = max((sample.timeStamp for sample in new), default=self._utilisation_us)
        return frozenset(int(sample.pid) for sample in new if sample.smUtil > 0)
