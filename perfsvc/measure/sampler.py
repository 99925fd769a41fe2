"""Taking samples of one case: warm up, then batch after batch until a rule has seen enough."""

import contextlib
import gc
import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from perfsvc.device.protocol import Device
from perfsvc.errors import DisturbedError, LaunchError
from perfsvc.measure.disturbance import Patience, disturbance
from perfsvc.measure.stopping import Precision, Rule, SampleCap, TimeCap, first_reached
from perfsvc.model import Batch, Mode

WARM_BATCH = 5
"""Samples between two looks at whether times are stable yet."""
WARM_AGREEMENT = 0.01
"""Two warm-up batches agree where their medians differ by no more than this share, or than their scatter."""
WARM_SHARE = 0.25
"""Of the time cap: what warming up may take."""
BATCH_S = 0.05
"""Seconds that a batch may last, so that the board is looked at this often."""
OPERATIONS_BESIDE = 4
"""What a sample queues beside its own work: a cache eviction of up to two, and two events."""
UNKNOWN_OPERATIONS = 8
"""What the work of a sample is taken to queue where it cannot be known."""
MOST_REJECTED = 3
"""Batches rejected in a row before a case waits for its board to recover."""
TRIPS_ALONE = 2
"""Single samples that the gate did not wait for before a case is timed without it."""
SHORT_S = 10e-6
"""Kernels shorter than this are timed back to back as well: what the clock itself costs shows in their times."""
SHORT_COUNT = 200

Clock = Literal["device", "host"]
Work = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a case is sampled.

    Attributes:
        precision: it stops when the 95 % confidence interval of the median is no wider than this, to each side and
            relative to the median,
        samples: or when so many are taken,
        seconds: or when so much time has passed, cache eviction and everything else included.
        least: samples below which the interval is not believed.
        evict: bytes written before a cold sample, as a multiple of the device's L2 cache.
        energy: measure the energy of a sample as well.
        recovery_s: how long a case waits in all for a disturbed board to recover.
    """

    precision: float = 0.002
    samples: int = 1000
    seconds: float = 2.0
    least: int = 50
    evict: float = 2.0
    energy: bool = False
    recovery_s: float = 30.0


@dataclass(frozen=True, slots=True)
class Samples:
    """The samples of one case.

    Attributes:
        batches: in the order they were taken, the rejected ones among them.
        warmup: samples taken before them and thrown away.
        warmup_busy_s: seconds that the device worked on those.
        stopped: why no more were taken.
        note: what a reader of the times has to know; empty where it is nothing.
        metrics: what was measured beside them, by name.
    """

    batches: tuple[Batch, ...]
    warmup: int
    warmup_busy_s: float
    stopped: str
    note: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)

    @property
    def seconds(self) -> tuple[float, ...]:
        """The samples that count, in seconds, in the order they were taken."""
        return accepted(self.batches)

    @property
    def busy_s(self) -> float:
        """Seconds that the device worked on all of them, warm-up included."""
        return self.warmup_busy_s + sum(batch.busy_s for batch in self.batches)


def accepted(batches: Sequence[Batch]) -> tuple[float, ...]:
    """The samples of batches that were not rejected."""
    return tuple(seconds for batch in batches if not batch.rejected for seconds in batch.samples_s)


def take(
    device: Device, work: Work, sampling: Sampling, *, clock: Clock, mode: Mode, operations: int | None
) -> Samples:
    """Samples the work that ``work`` queues.

    Args:
        device: where.
        work: queues one sample's work; with ``clock="host"`` also waits for it.
        sampling: how long.
        clock: by whom it is timed: between events behind the gate, or end to end by the host.
        mode: the cache before each sample.
        operations: how many operations ``work`` queues; None where that is not known.

    Raises:
        LaunchError: the clock gave a time that no launch can take.
        DisturbedError: the board was disturbed all the time, and did not recover.
    """
    with _without_garbage_collection():
        return Sampler(device, work, sampling, clock=clock, mode=mode, operations=operations).take()


@contextlib.contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """A collection amid the samples would delay a launch, or free an earlier case's modules on the device."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class Sampler:
    """Samples one case; see ``take``."""

    def __init__(
        self, device: Device, work: Work, sampling: Sampling, *, clock: Clock, mode: Mode, operations: int | None
    ) -> None:
        self._device = device
        self._work = work
        self._sampling = sampling
        self._clock = clock
        self._evict_bytes = int(sampling.evict * device.info.l2_bytes) if mode is Mode.COLD else 0
        self._gated = clock == "device"
        self._most = _most_queued(device.queue_depth, operations)
        self._rules: tuple[Rule, ...] = (
            Precision(sampling.precision, sampling.least),
            SampleCap(sampling.samples),
            TimeCap(sampling.seconds),
        )
        self._patience = Patience(sampling.recovery_s)
        self._batches: list[Batch] = []
        self._warmup: list[Batch] = []
        self._notes: list[str] = []
        self._tripped_alone = 0

    def take(self) -> Samples:
        """Warms up, samples, and measures beside the times what was asked for."""
        started = self._device.now()
        apiece_s = self._warm_up(started)
        stopped = self._sample(started, apiece_s)
        metrics = self._metrics()
        notes = [*self._notes, self._patience.note]
        return Samples(
            batches=tuple(self._batches),
            warmup=sum(len(batch.samples_s) for batch in self._warmup),
            warmup_busy_s=sum(batch.busy_s for batch in self._warmup),
            stopped=stopped,
            note="; ".join(filter(None, notes)),
            metrics=metrics,
        )

    def _warm_up(self, started: float) -> float:
        """Takes batches until two in a row agree; returns the seconds that a sample costs, eviction included.

        It gives up at its share of the time cap: times that go on drifting are then in the samples, whose interval
        says so. A case whose first sample takes longer than that share gets no other.
        """
        deadline = started + WARM_SHARE * self._sampling.seconds
        before: Batch | None = None
        while True:
            batch = self._batch(1 if before is None else min(WARM_BATCH, self._most))
            if self._tripped(batch):
                before = None
                continue
            self._warmup.append(batch)
            if self._device.now() >= deadline or (before is not None and _agree(before, batch)):
                return batch.busy_s / len(batch.samples_s)
            before = batch

    def _sample(self, started: float, apiece_s: float) -> str:
        """Takes batches until a rule has seen enough; returns why it ended."""
        rejected_in_a_row = 0
        while True:
            taken = accepted(self._batches)
            passed = self._device.now() - started - self._patience.waited_s
            batch = self._judged(self._batch(self._size(len(taken), passed, apiece_s)))
            self._batches.append(batch)
            if batch.rejected:
                rejected_in_a_row += 1
                if not self._tripped(batch) and rejected_in_a_row >= MOST_REJECTED:
                    rejected_in_a_row = 0
                    if not self._patience.wait(self._device, batch.rejected):
                        return self._out_of_patience(batch.rejected)
                continue
            rejected_in_a_row = 0
            passed = self._device.now() - started - self._patience.waited_s
            if stopped := first_reached(self._rules, accepted(self._batches), passed):
                return stopped

    def _size(self, taken: int, passed_s: float, apiece_s: float) -> int:
        """How many samples the next batch takes."""
        wanted = max(taken, self._sampling.least)  # doubles what there is
        lasting = min(BATCH_S, max(self._sampling.seconds - passed_s, 0.0)) / max(apiece_s, 1e-9)
        return max(1, min(wanted, int(lasting), self._most, self._sampling.samples - taken))

    def _batch(self, count: int) -> Batch:
        batch = self._device.batch(
            self._work, count, clock=self._clock, evict_bytes=self._evict_bytes, gated=self._gated
        )
        if not all(0 < seconds < math.inf for seconds in batch.samples_s):
            raise LaunchError(
                f"the clock gave {min(batch.samples_s):g} s for a sample",
                cure="choose a larger point: it is over too soon",
            )
        return batch

    def _judged(self, batch: Batch) -> Batch:
        """The batch, rejected where its times are not the kernel's alone."""
        if batch.gated and batch.kept_ahead is False:
            return replace(batch, rejected="the host fell behind: the gate opened by itself")
        return replace(batch, rejected=disturbance(batch.conditions))

    def _tripped(self, batch: Batch) -> bool:
        """Whether the gate opened by itself; then the next batch is smaller, or ungated where it cannot be."""
        if not batch.gated or batch.kept_ahead is not False:
            return False
        self._most = max(1, len(batch.samples_s) // 2)
        self._tripped_alone += len(batch.samples_s) == 1
        if self._tripped_alone == TRIPS_ALONE:
            self._gated = False
            self._notes.append("timed without the gate, for the work waits for the device")
        return True

    def _out_of_patience(self, cause: str) -> str:
        if not accepted(self._batches):
            raise DisturbedError(
                f"the board did not recover within {self._sampling.recovery_s:g} s: {cause}",
                cure="see what else runs on the board, and its cooling and power: nvidia-smi -q -d PERFORMANCE",
            )
        return f"the board did not recover within {self._sampling.recovery_s:g} s: {cause}"

    def _metrics(self) -> dict[str, float]:
        metrics: dict[str, float] = {}
        median_s = statistics.median(accepted(self._batches))
        clocks = [b.conditions.sm_clock_hz for b in self._batches if not b.rejected and b.conditions.sm_clock_hz]
        if clocks:
            metrics["sm_cycles"] = median_s * statistics.median(clocks)
        if self._clock == "device" and self._gated and median_s < SHORT_S:
            metrics |= self._of_a_short_kernel()
        if self._sampling.energy:
            joules = self._device.energy(self._work, 1.0)
            if joules is None:
                self._notes.append("this device does not count energy")
            else:
                metrics["energy_j"] = joules
        return metrics

    def _of_a_short_kernel(self) -> dict[str, float]:
        """What a sample takes without events between, and what the clock makes of nothing at all."""
        count = min(SHORT_COUNT, self._most)
        nothing = self._device.batch(lambda: None, count, clock="device", evict_bytes=0, gated=True)
        return {
            "back_to_back_s": self._device.back_to_back(self._work, count),
            "floor_s": statistics.median(nothing.samples_s),
        }


def _most_queued(depth: int, operations: int | None) -> int:
    """How many samples of so many operations a queue of a depth holds."""
    if not depth:
        return 1 << 30
    beside = 16  # the gate, the clock stamps, the events around the batch
    return max(1, (depth - beside) // ((UNKNOWN_OPERATIONS if operations is None else operations) + OPERATIONS_BESIDE))


def _agree(before: Batch, after: Batch) -> bool:
    medians = [statistics.median(batch.samples_s) for batch in (before, after)]
    scatter = float(np.std(after.samples_s)) / math.sqrt(len(after.samples_s))
    return abs(medians[0] - medians[1]) <= max(WARM_AGREEMENT * medians[1], 2 * scatter)
