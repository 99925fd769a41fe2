"""Read NVML, the driver's management library. The only importer of ``pynvml``.

Nothing here raises: a value that this GPU, driver or container does not provide is empty, zero or None.
"""

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

from perfsvc.model import Conditions, Slowdown

T = TypeVar("T")

INSTANCE: Final = "MIG-"
"""The beginning of the UUID of a MIG instance."""

_WATTS_PER_MILLIWATT = 1e-3
_JOULES_PER_MILLIJOULE = 1e-3
_HZ_PER_MHZ = 1e6
_NO_INSTANCE = 0xFFFFFFFF  # the instance of an event that concerns the whole GPU
_NO_HANDLES: Final[tuple[Any, Any]] = (None, None)
_MOST_EVENTS = 64  # read at once, even from a GPU that reports errors without end

_REASONS: Final = (
    ("nvmlClocksEventReasonSwPowerCap", Slowdown.POWER_CAP),
    ("nvmlClocksEventReasonSwThermalSlowdown", Slowdown.THERMAL),
    ("nvmlClocksEventReasonHwSlowdown", Slowdown.HARDWARE),
    ("nvmlClocksEventReasonHwThermalSlowdown", Slowdown.HARDWARE),
    ("nvmlClocksEventReasonHwPowerBrakeSlowdown", Slowdown.HARDWARE),
)
"""NVML's clock reasons that slow work down. Its other reasons, such as an idle GPU or a user's clocks, do not."""

_COUNTERS: Final = (
    ("NVML_FI_DEV_PERF_POLICY_POWER", Slowdown.POWER_CAP),
    ("NVML_FI_DEV_PERF_POLICY_THERMAL", Slowdown.THERMAL),
    ("NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN", Slowdown.THERMAL),
    ("NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN", Slowdown.HARDWARE),
    ("NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN", Slowdown.HARDWARE),
)
"""Counters of the time that the GPU was slowed down, which include the time between two readings. The first two are old
and equal to NVML's violation status; the other counters came with driver 570."""

_POWER: Final = "NVML_FI_DEV_POWER_INSTANT"
_ECC: Final = "NVML_FI_DEV_ECC_DBE_VOL_TOTAL"

_COMPUTE_MODES: Final[Mapping[int, str]] = {
    0: "default",
    1: "exclusive thread",
    2: "prohibited",
    3: "exclusive process",
}
"""NVML's numbers of compute modes."""

_TEMPORARY_ERRORS: Final = (
    "NVML_SUCCESS",  # pynvml raises it for an empty list
    "NVML_ERROR_TIMEOUT",
    "NVML_ERROR_NOT_FOUND",
    "NVML_ERROR_NO_DATA",
    "NVML_ERROR_INSUFFICIENT_SIZE",
    "NVML_ERROR_IN_USE",
    "NVML_ERROR_NOT_READY",
)
"""Errors after which the same question may succeed the next time."""

_MEMBERS: Final = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""The members of the union that holds a field's value, in the order of NVML's value types."""


# --- installed GPUs --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class InstalledGpu:
    """A GPU, or an instance of a GPU in MIG mode.

    Attributes:
        uuid: ``GPU-…`` or ``MIG-…``.
        gpu_uuid: the UUID of the GPU, or of the GPU that the instance is a part of.
        ordinal: the GPU's position on the PCI bus, which is CUDA's number with ``CUDA_DEVICE_ORDER=PCI_BUS_ID``.
    """

    uuid: str
    gpu_uuid: str
    ordinal: int

    @property
    def is_instance(self) -> bool:
        """Whether this is an instance and not a whole GPU."""
        return self.uuid.startswith(INSTANCE)


def driver_version() -> str:
    """Return the driver's version as nvidia-smi prints it (``580.159.04``); empty if NVML does not report it."""
    return ask(lambda nvml: str(nvml.nvmlSystemGetDriverVersion()), otherwise="")


def power_limit_w(uuid: str) -> float:
    """Return the power limit of a GPU, or of the GPU of a MIG instance, in watts; zero if NVML does not report it."""

    def limit(nvml: Any) -> float:
        _, gpu = handles(nvml, uuid)
        return float(nvml.nvmlDeviceGetPowerManagementLimit(gpu)) * _WATTS_PER_MILLIWATT

    return ask(limit, otherwise=0.0)


def installed_gpus() -> list[InstalledGpu]:
    """Return every GPU that NVML lists, in NVML's order; a GPU in MIG mode is replaced by its instances, if any."""

    def gpus(nvml: Any) -> list[InstalledGpu]:
        installed = []
        for ordinal in range(nvml.nvmlDeviceGetCount()):
            with contextlib.suppress(nvml.NVMLError):  # a lost GPU must not hide the others
                gpu = nvml.nvmlDeviceGetHandleByIndex(ordinal)
                gpu_uuid = str(nvml.nvmlDeviceGetUUID(gpu))
                installed += [InstalledGpu(uuid, gpu_uuid, ordinal) for uuid in _instances(nvml, gpu, gpu_uuid)]
        return installed

    return ask(gpus, otherwise=[])


def settings_of_gpu(uuid: str) -> dict[str, str]:
    """Return the settings of a GPU, or of the GPU of a MIG instance, by name (``perfsvc.model.PARTS``).

    A setting that NVML does not report is absent. NVML does not report whether clocks are locked (``nvidia-smi -lgc``).
    """
    with contextlib.closing(_Nvml()) as nvml:
        found = nvml.ask("GPU", lambda library: handles(library, uuid))
        if found is None:
            return {}
        _, gpu = found
        answers = {name: nvml.ask(name, partial(question, gpu)) for name, question in _SETTINGS.items()}
    return {name: answer for name, answer in answers.items() if answer}


def _on_or_off(mode: int) -> str:
    return "on" if mode else "off"


def _application_clock(which: str, gpu: Any, nvml: Any) -> str:
    return f"{nvml.nvmlDeviceGetApplicationsClock(gpu, getattr(nvml, which))} MHz"


def _active_nvlinks(gpu: Any, nvml: Any) -> str:
    """Return the number of active NVLink connections; raises NVML's error if the GPU has none at all."""
    active = int(bool(nvml.nvmlDeviceGetNvLinkState(gpu, 0)))
    for link in range(1, nvml.NVML_NVLINK_MAX_LINKS):
        try:
            active += bool(nvml.nvmlDeviceGetNvLinkState(gpu, link))
        except nvml.NVMLError:  # the GPU has fewer connections
            break
    return str(active)


_SETTINGS: Final[Mapping[str, Callable[[Any, Any], str]]] = {
    "gpu.application_memory_clock": partial(_application_clock, "NVML_CLOCK_MEM"),
    "gpu.application_sm_clock": partial(_application_clock, "NVML_CLOCK_SM"),
    "gpu.compute_mode": lambda gpu, nvml: _COMPUTE_MODES.get(nvml.nvmlDeviceGetComputeMode(gpu), ""),
    "gpu.ecc": lambda gpu, nvml: _on_or_off(nvml.nvmlDeviceGetEccMode(gpu)[0]),
    "gpu.mig": lambda gpu, nvml: _on_or_off(nvml.nvmlDeviceGetMigMode(gpu)[0]),
    "gpu.nvlinks": _active_nvlinks,
    # The present generation would change whenever the GPU saves power.
    "gpu.pcie_generation": lambda gpu, nvml: str(nvml.nvmlDeviceGetMaxPcieLinkGeneration(gpu)),
    "gpu.pcie_width": lambda gpu, nvml: str(nvml.nvmlDeviceGetCurrPcieLinkWidth(gpu)),
    "gpu.persistence": lambda gpu, nvml: _on_or_off(nvml.nvmlDeviceGetPersistenceMode(gpu)),
    "gpu.vbios": lambda gpu, nvml: str(nvml.nvmlDeviceGetVbiosVersion(gpu)),
}
"""How NVML is asked for each setting, with its handle of the whole GPU."""


def available_readings(uuid: str) -> dict[str, bool]:
    """Return the names of all readings, and whether this GPU, driver and container provide each."""
    with contextlib.closing(GpuTelemetry(uuid)) as gpu:
        return gpu.available_readings()


def _instances(nvml: Any, gpu: Any, gpu_uuid: str) -> Iterator[str]:
    """Yield the UUIDs of a GPU's instances if the GPU is in MIG mode, else the GPU's own UUID."""
    try:
        current, _ = nvml.nvmlDeviceGetMigMode(gpu)
    except nvml.NVMLError:  # a GPU without MIG
        current = nvml.NVML_DEVICE_MIG_DISABLE
    if current != nvml.NVML_DEVICE_MIG_ENABLE:
        yield gpu_uuid
        return
    for index in range(nvml.nvmlDeviceGetMaxMigDeviceCount(gpu)):
        with contextlib.suppress(nvml.NVMLError):  # no instance has this index, or this container may not use it
            yield str(nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, index)))


def handles(nvml: Any, uuid: str) -> tuple[Any, Any]:
    """Return NVML's handle of a GPU or instance, and its handle of the whole GPU."""
    device = nvml.nvmlDeviceGetHandleByUUID(uuid)
    instance = uuid.startswith(INSTANCE)
    return device, nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device) if instance else device


def ask(question: Callable[[Any], T], *, otherwise: T) -> T:
    """Return NVML's answer, or ``otherwise`` if NVML's package, NVML's library or the answer is missing."""
    with contextlib.closing(_Nvml()) as nvml:
        answer = nvml.ask("", question)
    return otherwise if answer is None else answer


# --- one GPU, reading after reading ----------------------------------------------------------------------------------


class _Nvml:
    """NVML, opened once. A question whose topic NVML has refused for good is not asked again."""

    def __init__(self) -> None:
        self._library: Any = None
        self._refused: set[str] = set()
        self._temporary_errors: frozenset[int] = frozenset()
        try:
            import pynvml
        except ImportError:
            return
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlInit()
            self._library = pynvml
            self._temporary_errors = frozenset(self.numbers(_TEMPORARY_ERRORS).values())

    def numbers(self, names: Iterable[str]) -> dict[str, int]:
        """Return the values of NVML's constants, without those that an older pynvml does not have."""
        return {name: getattr(self._library, name) for name in names if hasattr(self._library, name)}

    def ask(self, topic: str, question: Callable[[Any], T]) -> T | None:
        """Return NVML's answer to a question; None if NVML has no answer.

        Args:
            topic: the name of the question; after a permanent refusal, the question is not asked again.
            question: calls NVML and returns the answer.
        """
        if self.refuses(topic):
            return None
        try:
            return question(self._library)
        except AttributeError:  # the call is newer than the package
            self._refused.add(topic)
        except self._library.NVMLError as error:
            if not self.is_temporary(error.value):
                self._refused.add(topic)
        return None

    def refuses(self, topic: str) -> bool:
        """Return whether NVML is missing or has refused this topic for good."""
        return self._library is None or topic in self._refused

    def is_temporary(self, code: int) -> bool:
        """Return whether the same question may succeed the next time."""
        return code in self._temporary_errors

    def close(self) -> None:
        """Close the library; all questions are refused afterwards."""
        if self._library is not None:
            with contextlib.suppress(self._library.NVMLError):
                self._library.nvmlShutdown()
            self._library = None


class OtherProcesses:
    """Finds the processes on a GPU that are not this one.

    The driver often knows a process by another id than its container does. So the id of this process may be missing on
    the driver's list. Then this process is the one that appeared on the list when its context was created.

    If this process cannot be recognised, no other is reported: rejecting a batch because of our own work would be worse
    than overlooking another process. For the same reason only listed compute processes are reported: drivers also count
    utilisation under ids that are not listed, and our own process may have such an id. Processes that only draw (a
    desktop) are not listed.

    Args:
        listed: returns the process ids of the compute processes on the GPU now; None if unknown.
        worked: returns the process ids that worked since the last call; None if unknown. With None, every listed
            process but this one counts as working.
    """

    def __init__(
        self, listed: Callable[[], frozenset[int] | None], worked: Callable[[], frozenset[int] | None]
    ) -> None:
        # All sets are process ids, as the driver of the GPU knows them.
        self._listed = listed
        self._worked = worked
        self._before = listed() or frozenset()
        self._own: frozenset[int] = frozenset()
        self._seen: frozenset[int] = frozenset()
        self._unlisted: frozenset[int] = frozenset()

    def recognise_own(self) -> None:
        """Find this process on the driver's list of processes, and ignore what other processes have done so far.

        Call this method after the context of this process was created. This process is the listed process with our id,
        else the process that was not listed before. Another process that appeared at the same moment counts as this
        process.
        """
        self._seen = self._listed() or frozenset()
        own = frozenset({os.getpid()})
        self._own = own if own <= self._seen else self._seen - self._before
        self._worked()

    def at_work(self) -> tuple[int, ...]:
        """Return the driver's ids of the other processes that worked since the last call."""
        if not self._own:
            return ()
        worked = self._worked()
        if worked is None:
            return tuple(sorted((self._listed() or frozenset()) - self._own))
        # Ids that are not listed are remembered, so that the processes are listed again only for a new id.
        if unknown := worked - self._own - self._seen - self._unlisted:
            self._seen |= self._listed() or frozenset()
            self._unlisted |= unknown - self._seen
        return tuple(sorted((worked & self._seen) - self._own))


class GpuTelemetry:
    """Reads the conditions of one GPU.

    There is one reading per batch, so a reading makes few calls. One call reads all counters (time spent slowed down,
    ECC, power). Six calls read the two clocks, the temperature, the reasons for the present clocks, the process
    utilisation and the events. Another call lists the processes, but only if an unknown process has worked. Calls that
    are refused for good (NVML's ``NOT_SUPPORTED``, for example) are not repeated. The first reading is taken when the
    GPU is opened, so that every later reading reports what is new.

    A MIG instance has its own processes and Xids. Its clocks, temperature, power and slowdowns are those of its GPU.
    The energy of its GPU is not reported, because it is not the instance's alone.

    Args:
        uuid: the UUID of a GPU or an instance. Create this object before, or while, this process's context is created.
    """

    def __init__(self, uuid: str) -> None:
        self._nvml = _Nvml()
        found = self._nvml.ask("GPU", lambda nvml: handles(nvml, uuid))
        if found is None:
            self._nvml.close()
        self._device, self._gpu = found or _NO_HANDLES
        self._utilisation_us = 0
        self._others = OtherProcesses(self._processes, self._worked)  # before this process has a context
        self._is_whole = not uuid.startswith(INSTANCE)
        self._instance = self._nvml.ask("instance", lambda nvml: nvml.nvmlDeviceGetGpuInstanceId(self._device))
        self._fields = self._nvml.numbers([_POWER, _ECC, *dict(_COUNTERS)])
        self._reasons = self._nvml.numbers(dict(_REASONS))
        self._counted: dict[str, int] = {}
        self._events = self._nvml.ask("event set", self._register_events)
        self.read()

    def recognise_own_process(self) -> None:
        """Note that this process's context exists now: see ``OtherProcesses.recognise_own``."""
        self._others.recognise_own()

    def read(self) -> Conditions:
        """Return the GPU's conditions now, and what happened since the last reading."""
        counters = self._counters()
        return Conditions(
            sm_clock_hz=self._clock_hz("NVML_CLOCK_SM"),
            memory_clock_hz=self._clock_hz("NVML_CLOCK_MEM"),
            temperature_c=self._temperature_c(),
            power_w=self._power_w(counters),
            slowdowns=self._slowdowns(counters),
            ecc_errors=self._growth(_ECC, counters),
            xids=tuple(self._xids()),
            others=self._others.at_work(),
        )

    def energy_j(self) -> float | None:
        """Return the joules that the GPU used since its driver was loaded; None for a MIG instance or if unknown."""
        if not self._is_whole:
            return None
        consumed = self._nvml.ask("energy", lambda nvml: nvml.nvmlDeviceGetTotalEnergyConsumption(self._gpu))
        return None if consumed is None else consumed * _JOULES_PER_MILLIJOULE

    def available_readings(self) -> dict[str, bool]:
        """Return the names of all readings, and whether this GPU, driver and container provide each."""
        self.recognise_own_process()
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
        """Free everything; later readings are empty."""
        if self._events is not None:
            self._nvml.ask("freeing", lambda nvml: nvml.nvmlEventSetFree(self._events))
            self._events = None
        self._nvml.close()

    def _counters(self) -> dict[str, int]:
        """Return the counters and the power that this GPU provides, by the names of their fields."""
        if not self._fields:
            return {}
        names, numbers = list(self._fields), list(self._fields.values())
        values = self._nvml.ask("counters", lambda nvml: nvml.nvmlDeviceGetFieldValues(self._gpu, numbers))
        counters = {}
        for name, field in zip(names, values or (), strict=False):
            if field.nvmlReturn == 0:
                counters[name] = int(getattr(field.value, _MEMBERS[field.valueType]))
            elif not self._nvml.is_temporary(field.nvmlReturn):
                del self._fields[name]
        return counters

    def _growth(self, name: str, counters: Mapping[str, int]) -> int:
        """Return by how much a counter grew since the last reading; 0 if the driver restarted it."""
        if name not in counters:
            return 0
        before = self._counted.get(name, counters[name])
        self._counted[name] = counters[name]
        return max(0, counters[name] - before)

    def _clock_hz(self, which: str) -> float | None:
        mhz = self._nvml.ask(which, lambda nvml: nvml.nvmlDeviceGetClockInfo(self._gpu, getattr(nvml, which)))
        return None if mhz is None else mhz * _HZ_PER_MHZ

    def _temperature_c(self) -> float | None:
        return self._nvml.ask(
            "temperature",
            lambda nvml: float(nvml.nvmlDeviceGetTemperature(self._gpu, nvml.NVML_TEMPERATURE_GPU)),
        )

    def _power_w(self, counters: Mapping[str, int]) -> float | None:
        """Return the present power, or the mean over the last second if the GPU reports only the mean."""
        milliwatts = counters.get(_POWER)
        if milliwatts is None:
            milliwatts = self._nvml.ask("power", lambda nvml: nvml.nvmlDeviceGetPowerUsage(self._gpu))
        return None if milliwatts is None else milliwatts * _WATTS_PER_MILLIWATT

    def _slowdowns(self, counters: Mapping[str, int]) -> tuple[Slowdown, ...]:
        """Return the present slowdowns, and the slowdowns counted since the last reading."""
        present = self._present_reasons()
        slowdowns = {slowdown for name, slowdown in _REASONS if present & self._reasons.get(name, 0)}
        slowdowns |= {slowdown for name, slowdown in _COUNTERS if self._growth(name, counters)}
        return tuple(slowdown for slowdown in Slowdown if slowdown in slowdowns)

    def _present_reasons(self) -> int:
        """Return NVML's bits for the reasons of the present clocks; drivers before 535 use an older name."""
        reasons = self._nvml.ask("event reasons", lambda nvml: nvml.nvmlDeviceGetCurrentClocksEventReasons(self._gpu))
        if reasons is None:
            reasons = self._nvml.ask(
                "throttle reasons", lambda nvml: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(self._gpu)
            )
        return int(reasons or 0)

    def _register_events(self, nvml: Any) -> Any:
        """Return an event set for the GPU's Xids."""
        events = nvml.nvmlEventSetCreate()
        try:
            nvml.nvmlDeviceRegisterEvents(self._gpu, nvml.nvmlEventTypeXidCriticalError, events)
        except nvml.NVMLError:
            nvml.nvmlEventSetFree(events)
            raise
        return events

    def _xids(self) -> Iterator[int]:
        """Yield the Xids since the last reading; for an instance, the Xids of the instance and of the whole GPU."""
        for _ in range(_MOST_EVENTS if self._events is not None else 0):
            event = self._nvml.ask("events", lambda nvml: nvml.nvmlEventSetWait_v2(self._events, 0))
            if event is None:
                return
            if self._is_whole or event.gpuInstanceId in {self._instance, _NO_INSTANCE}:
                yield int(event.eventData)

    def _processes(self) -> frozenset[int] | None:
        listed = self._nvml.ask("processes", lambda nvml: nvml.nvmlDeviceGetComputeRunningProcesses(self._device))
        return None if listed is None else frozenset(int(process.pid) for process in listed)

    def _worked(self) -> frozenset[int] | None:
        """Return the processes that used multiprocessors since the last call; None if NVML does not report them."""
        topic = "process utilisation"
        samples = self._nvml.ask(
            topic, lambda nvml: nvml.nvmlDeviceGetProcessUtilization(self._device, self._utilisation_us)
        )
        if samples is None and self._nvml.refuses(topic):
            return None
        new = [sample for sample in samples or () if sample.timeStamp > self._utilisation_us]
        self._utilisation_us = max((sample.timeStamp for sample in new), default=self._utilisation_us)
        return frozenset(int(sample.pid) for sample in new if sample.smUtil > 0)
