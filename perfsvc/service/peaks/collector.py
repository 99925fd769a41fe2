"""Collect the measured peaks of a run's devices as their measurements arrive."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from perfsvc import judge
from perfsvc.model import MEMORY, PEAK_NAMES, PRECISIONS, DeviceInfo, Measurement, Peak, Rates, Status
from perfsvc.service import peaks
from perfsvc.service.peaks import kernels, memory
from perfsvc.store import Store
from perfsvc.suite import CaseSpec

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
