"""The measured peak: the highest rate at which a GPU's memory moves bytes, measured at the start of each run.

The peak is measured like any case. Results are shown as shares of it, and a case that declares more work than the peak
allows is doubted.
"""

from collections.abc import Callable, Mapping
from math import prod
from pathlib import Path
from types import MappingProxyType

import numpy as np

from perfsvc import judge
from perfsvc.measure.protocol.messages import Sampling
from perfsvc.model import (
    Array,
    Buffer,
    BufferArg,
    CacheState,
    Case,
    DeviceInfo,
    Kind,
    Launch,
    Measurement,
    Peak,
    Role,
    Status,
    Tolerance,
    Unit,
    Work,
)
from perfsvc.report.rows import Doubt
from perfsvc.suite import CaseSpec

BENCHMARK = "peak"
OURS = 0
"""The version of the cases. A suite's versions begin with 1, so no benchmark can be mistaken for these cases."""

SOURCE = Path(__file__).with_name("peaks.cu")
COPY, READ = "perfsvc_peak_copy", "perfsvc_peak_read"
BLOCK = 256
ACCESS_BYTES = 16
UNDER_WAY = 4
"""Accesses of a thread that are under way at once, as in ``peaks.cu``."""
TILE_BYTES = BLOCK * ACCESS_BYTES * UNDER_WAY

BEYOND_L2 = 4
"""A footprint of at least this many times the L2 cache must come from memory."""
LEAST_BYTES = 512 << 20
"""Smallest buffer, in bytes: short launches do not reach the memory's full rate."""
SHARE = 8
"""A buffer takes at most 1/8 of the GPU's memory."""
UNKNOWN_BYTES = 1 << 20
"""Buffer size in bytes if a device does not report its memory, as the fake device does not."""

SAMPLING = Sampling(samples=100, seconds=0.5, least=20)
"""Launches this long vary little, so the peak is known early."""

TOLERATED = 1.05
"""No case can exceed the peak by more than this: it covers the noise of both and the last per cent our kernels miss."""
NOTE = "its work is declared as more than the GPU's memory can move in that time"


def specs(device: DeviceInfo) -> tuple[CaseSpec, ...]:
    """Return the cases that measure the peak bandwidth of a device's memory; none for the CPU device."""
    if device.kind == "cpu":
        return ()
    nbytes = _buffer_bytes(device)
    return (
        _spec("copy", COPY, nbytes, Array("to", "uint32", (nbytes // 4,)), Work(nbytes, nbytes)),
        _spec("read", READ, nbytes, Array("sink", "uint32", (1,)), Work(nbytes)),
    )


def _buffer_bytes(device: DeviceInfo) -> int:
    """Return the size in bytes of a buffer that is larger than the L2 cache and fits into memory, in whole tiles."""
    wanted = max(BEYOND_L2 * device.l2_bytes, LEAST_BYTES)
    most = device.memory_bytes // SHARE or UNKNOWN_BYTES
    return max(min(wanted, most) // TILE_BYTES, 1) * TILE_BYTES


def _spec(variant: str, entry: str, nbytes: int, target: Array, work: Work) -> CaseSpec:
    """Return a case whose kernel ``entry`` reads ``nbytes`` and writes to ``target``."""
    source = Array("from", "uint32", (nbytes // 4,))
    launch = Launch(0, entry, (nbytes // TILE_BYTES, 1, 1), (BLOCK, 1, 1), (BufferArg(target.name), BufferArg("from")))
    return CaseSpec(
        case=Case(BENCHMARK, variant, version=OURS),
        kind=Kind.KERNEL,
        cache=CacheState.COLD,
        requires=(),
        units=(Unit(SOURCE, (COPY, READ)),),
        buffers=(Buffer(target, Role.SCRATCH), Buffer(source, Role.SCRATCH)),
        steps=(launch,),
        work=work,
        tolerance=Tolerance(max=0.0, mean=0.0),
        bench=SOURCE,
        bench_text="",
        seed=0,
    )


class PeakCollector:
    """Collects the measured peaks of a run's devices as their measurements arrive.

    Args:
        devices: the devices of the run.
        report: receives a message for the user if the peak of a device stays unknown.
        known: peaks that a resumed run already has, by UUID.

    Attributes:
        peaks: the complete peaks, by UUID.
    """

    def __init__(
        self,
        devices: tuple[DeviceInfo, ...],
        report: Callable[[str], object],
        known: Mapping[str, Peak] = MappingProxyType({}),
    ) -> None:
        self.peaks = dict(known)
        self._report = report
        self._failed: set[str] = set()
        self._work = {device.uuid: {spec.case: spec.work for spec in specs(device)} for device in devices}
        self._rates: dict[str, dict[str, float]] = {uuid: {} for uuid in self._work}

    def take(self, measurement: Measurement) -> bool:
        """Collect a measurement of a peak case and return True; return False for any other case.

        A failed peak case is reported, not raised.
        """
        uuid, case = measurement.device, measurement.case
        work = self._work[uuid].get(case)
        if work is None:
            return False
        if measurement.status is not Status.OK:
            self.fail(uuid, measurement.reason)
            return True
        rates = self._rates[uuid]
        rates[case.variant] = work.bytes / judge.estimate(measurement.samples_s).median_s
        if len(rates) == len(self._work[uuid]):
            self.peaks[uuid] = Peak(copy_bytes_per_s=rates["copy"], read_bytes_per_s=rates["read"])
        return True

    def fail(self, device: str, reason: str) -> None:
        """Report that the peak of a device stays unknown, and why; a second failure of the device is not reported."""
        if device in self._failed:
            return
        self._failed.add(device)
        self._report(f"the memory of {device} could not be measured, so no share of it is shown: {reason}")


def doubt(spec: CaseSpec, device: DeviceInfo, median_s: float, peak: Peak | None) -> Doubt | None:
    """Return a doubt if a case declares more bytes than the memory can move in its time, else None.

    Buffers that are not much larger than the L2 cache may be read from the cache, so such a case is never doubted.
    """
    if peak is None or not device.l2_bytes:
        return None
    footprint = sum(prod(buffer.array.shape) * np.dtype(buffer.array.dtype).itemsize for buffer in spec.buffers)
    if footprint < BEYOND_L2 * device.l2_bytes:
        return None
    rate = spec.work.bytes / median_s
    if rate <= TOLERATED * peak.best_bytes_per_s:
        return None
    return Doubt(spec.case, device.uuid, spec.cache, spec.work.bytes, rate, peak.best_bytes_per_s)
