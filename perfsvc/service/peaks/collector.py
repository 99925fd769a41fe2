"""Collect the measured peaks of a run's devices as their measurements arrive."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from perfsvc import judge
from perfsvc.device.memory import array_bytes
from perfsvc.model import MEMORY, PEAK_NAMES, PRECISIONS, DeviceInfo, Measurement, Peak, Rates, Status, peak_of
from perfsvc.report.rows import Doubt
from perfsvc.service import peaks
from perfsvc.service.peaks import kernels, memory
from perfsvc.service.peaks.kernels import FULL_RATE
from perfsvc.service.peaks.memory import BEYOND_L2
from perfsvc.store import Store
from perfsvc.suite import CaseSpec

BYTES_TOLERATED = 1.05
"""No case can exceed the peak of the memory by more than this factor. It covers the noise of both measurements, and
the last per cent of the bandwidth, which our kernels do not reach."""
FLOPS_TOLERATED = 1.25
"""The peak of arithmetic is what the GPU sustains. A short kernel may end before the GPU lowers its clock for the load:
an H100 then computes 1.2 times as fast."""


ONE_RATE = ("fp32", "fp64")
"""The precisions whose measured peak is the limit on every GPU."""


def doubt(spec: CaseSpec, device: DeviceInfo, median_s: float, rates: Rates) -> Doubt | None:
    """Return a doubt if a case declares more bytes or operations than the GPU can do in its time, else None.

    Buffers that are not much larger than the L2 cache may be read from the cache, so the bytes of such a case are never
    doubted.

    Args:
        spec: the case.
        device: the GPU.
        median_s: the time of a launch.
        rates: the measured peaks of the GPU.
    """
    work, memory, arithmetic = spec.work, rates.get(MEMORY), peak_of(spec.work.precision, rates)
    footprint = sum(array_bytes(buffer.array) for buffer in spec.buffers)
    beyond_l2 = 0 < BEYOND_L2 * device.l2_bytes <= footprint
    if memory and beyond_l2 and work.bytes > BYTES_TOLERATED * memory * median_s:
        return Doubt(spec.case, device.uuid, spec.cache, MEMORY, work.bytes, work.bytes / median_s, memory)
    is_limit = work.precision in ONE_RATE or device.target in FULL_RATE
    if arithmetic and is_limit and work.flops > FLOPS_TOLERATED * arithmetic * median_s:
        return Doubt(spec.case, device.uuid, spec.cache, work.precision, work.flops, work.flops / median_s, arithmetic)
    return None


def note(doubted: Doubt) -> str:
    """Return a doubt as the note of a measurement."""
    what = "bytes than the GPU's memory can move" if doubted.peak == MEMORY else "operations than the GPU can do"
    return f"its work is declared as more {what} in that time"


Write = Callable[[Callable[[Store, int], None]], None]
"""Calls a function that writes with a store and the number of the run in it."""

Known = Mapping[str, Rates]
"""The peaks of arithmetic, L2 cache and link that are already known, by the UUID of the GPU or group."""
_NONE: Mapping[str, Peak] = MappingProxyType({})


class PeakCollector:
    """Collects the measured peaks of a run's devices, and stores them.

    Args:
        store: an open store, with the peaks of arithmetic and L2 caches that earlier runs measured.
        run: the number of the run.
        devices: the devices of the run.
        report: receives a message for the user if a peak stays unknown.
        memory_peaks: the peaks of the memory that a resumed run already has, by UUID.
        write: how peaks are written; None to write to ``store``.
    """

    def __init__(
        self,
        store: Store,
        run: int,
        devices: Sequence[DeviceInfo],
        report: Callable[[str], object],
        memory_peaks: Mapping[str, Peak] = _NONE,
        *,
        write: Write | None = None,
    ) -> None:
        self._write = write or (lambda act: act(store, run))
        self._devices = {device.uuid: device for device in devices}
        self._report = report
        self._failed: set[str] = set()
        self._specs = {device.uuid: {spec.case: spec for spec in peaks.specs(device)} for device in devices}
        self._memory: dict[str, dict[str, float]] = {device.uuid: {} for device in devices}
        self._memory_peaks = dict(memory_peaks)
        for device in devices:
            store.devices.forget_gpu_peaks(device, except_version=kernels.VERSION)
        self._rates = {device.uuid: store.devices.gpu_peaks(device, version=kernels.VERSION) for device in devices}

    def rates(self, device: str) -> dict[str, float]:
        """Return the known peaks of a device (UUID) by name."""
        peak = self._memory_peaks.get(device)
        return self._rates[device] | ({MEMORY: peak.best_bytes_per_s} if peak else {})

    @property
    def of_memory(self) -> Mapping[str, Peak]:
        """The measured peaks of the run's memory so far, by UUID."""
        return self._memory_peaks

    def unknown(self, device: str) -> list[CaseSpec]:
        """Return the cases that measure the peaks of a device (UUID) that are not known yet."""
        has_memory = device in self._memory_peaks
        return [
            spec
            for case, spec in self._specs[device].items()
            if not (has_memory if case.variant in memory.VARIANTS else case.variant in self._rates[device])
        ]

    def take(self, measurement: Measurement) -> bool:
        """Store the peak that a measurement gives, and return True; return False if it measures a case of the suite.

        A failed measurement is reported, not raised.
        """
        uuid, case = measurement.device, measurement.case
        spec = self._specs[uuid].get(case)
        if spec is None:
            return False
        if measurement.status is not Status.OK:
            self.fail(uuid, case.variant, measurement.reason)
            return True
        work = spec.work
        rate = (work.flops or work.link_bytes or work.bytes) / judge.estimate(measurement.samples_s).median_s
        if case.variant not in memory.VARIANTS:
            self._rates[uuid][case.variant] = rate
            device, variant = self._devices[uuid], case.variant
            self._write(lambda store, _: store.devices.put_gpu_peak(device, variant, rate, version=kernels.VERSION))
            return True
        self._memory[uuid][case.variant] = rate
        if len(self._memory[uuid]) == len(memory.VARIANTS):
            self._memory_peaks[uuid] = Peak(*(self._memory[uuid][variant] for variant in memory.VARIANTS))
            self._write(lambda store, run: store.devices.put_peaks(run, self._memory_peaks))
        return True

    def doubt(self, device: str, precision: str) -> None:
        """Have the next run measure the peaks of a precision again, because a case was faster than these peaks."""
        names = PRECISIONS[precision]
        self._write(lambda store, _: store.devices.doubt_gpu_peaks(self._devices[device], names))

    def fail(self, device: str, variant: str, reason: str) -> None:
        """Report that a peak of a device stays unknown, and why; report the memory only once for both of its cases."""
        what = "memory" if variant in memory.VARIANTS else f"{PEAK_NAMES[variant]} peak"
        message = f"the {what} of {device} could not be measured, so no share of it is shown: {reason}"
        if f"{device} {what}" not in self._failed:
            self._failed.add(f"{device} {what}")
            self._report(message)
