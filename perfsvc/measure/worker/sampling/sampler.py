"""Taking samples of one case: warm up, then batch after batch until a rule has seen enough."""

import contextlib
import gc
import math
import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

from perfsvc.device.protocol import Device
from perfsvc.errors import DisturbedError
from perfsvc.measure.worker.sampling import auxiliary
from perfsvc.measure.worker.sampling.batches import Batches, Recovery, disturbances
from perfsvc.measure.worker.sampling.stopping import Precision, Rule, SampleCap, TimeCap, first_reached
from perfsvc.model import Batch, CacheState, Slowdown

WARM_BATCH = 5
"""Samples between two looks at whether times are stable yet."""
WARM_AGREEMENT = 0.01
"""Two batches of the warm-up agree where their medians differ by no more than this share, or than their scatter."""
WARM_SHARE = 0.25
"""Of the time cap: what the warm-up may take, and each one after a wait for the GPU."""
DISTURBED_IN_A_ROW = 3
"""Batches, after which a case waits for its GPU to recover."""
SETTLE_S = 0.2
"""What a GPU needs to raise its clocks again after a load that took it to its power limit: an H100, to within 1 %."""
UNKNOWN_CACHE_BYTES = 128 << 20
"""Taken for the L2 cache of a device that does not say: no GPU has more (B200: 126 MB)."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a case is sampled.

    Attributes:
        precision: it stops when the 95 % confidence interval of the median is no wider than this, to each side and
            relative to the median,
        samples: or when so many are taken,
        seconds: or when so much time has passed, cache eviction and everything else included.
        least: samples below which the interval is not believed.
        least_s: seconds below which ending early saves little beside what a replica costs in any case.
        evict: bytes written before a cold sample, as a multiple of the device's L2 cache.
        energy: measure the energy of a sample as well.
        recovery_s: how long a case waits in all for a disturbed GPU to recover.
    """

    precision: float = 0.002
    samples: int = 1000
    seconds: float = 2.0
    least: int = 50
    least_s: float = 0.0
    evict: float = 2.0
    energy: bool = False
    recovery_s: float = 30.0


@dataclass(frozen=True, slots=True)
class Samples:
    """The samples of one case.

    Attributes:
        batches: in the order they were taken, the rejected ones among them.
        seconds: the samples that count, in seconds, in the order they were taken.
        median_s: of those.
        warmup: samples taken before them, and after a wait for the GPU, and thrown away.
        stopped: why no more were taken.
        note: what a reader of the times has to know; empty where it is nothing.
        metrics: what was measured beside them, by name.
        warmup_busy_s: seconds that the device worked on the warm-up.
    """

    batches: tuple[Batch, ...]
    seconds: tuple[float, ...]
    median_s: float
    warmup: int
    stopped: str
    note: str
    metrics: Mapping[str, float]
    warmup_busy_s: float

    @property
    def busy_s(self) -> float:
        """Seconds that the device worked on all of them, warm-up included."""
        return self.warmup_busy_s + sum(batch.busy_s for batch in self.batches)


NONE = Samples(
    batches=(),
    seconds=(),
    median_s=math.nan,
    warmup=0,
    stopped="",
    note="",
    metrics=MappingProxyType({}),
    warmup_busy_s=0.0,
)
"""Of a case that is not timed."""


def take(
    device: Device,
    sample: Callable[[], None],
    sampling: Sampling,
    *,
    clock: Literal["device", "host"],
    cache: CacheState,
    operations: int | None,
) -> Samples:
    """Samples the work that ``sample`` queues.

    The time cap counts all that sampling costs, cache eviction and warm-up included, but not what was lost at a blocking kernel
    that opened by itself, nor waiting for the GPU to recover. At least one sample counts in the end.

    Args:
        device: where.
        sample: queues the work of one sample; with ``clock="host"`` it also waits for it.
        sampling: how long.
        clock: by whom it is timed: between events behind the blocking kernel, or end to end by the host.
        cache: the cache before each sample.
        operations: how many operations a sample queues; None where that is not known.

    Raises:
        LaunchError: the clock gave a time that no launch can take.
        DisturbedError: the GPU was disturbed all the time, and did not recover.
    """
    cache_bytes = device.info.l2_bytes or UNKNOWN_CACHE_BYTES
    evict_bytes = int(sampling.evict * cache_bytes) if cache is CacheState.COLD else 0
    with _without_garbage_collection():
        batches = Batches(device, sample, clock=clock, evict_bytes=evict_bytes, operations=operations)
        return _Sampler(device, sample, batches, sampling).take()


@contextlib.contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """A collection amid the samples would delay a launch, or free an earlier case's modules on the device."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class _Sampler:
    """Takes the samples of one case; see ``take``."""

    def __init__(self, device: Device, sample: Callable[[], None], batches: Batches, sampling: Sampling) -> None:
        self._device = device
        self._sample = sample
        self._batches = batches
        self._sampling = sampling
        self._rules: tuple[Rule, ...] = (
            Precision(sampling.precision, sampling.least, sampling.least_s),
            SampleCap(sampling.samples),
            TimeCap(sampling.seconds),
        )
        self._recovery = Recovery(device, sampling.recovery_s)
        self._started = device.now()
        self._warmup: list[Batch] = []
        self._taken: list[Batch] = []
        self._counting: list[float] = []  # the samples of those that were not rejected

    def take(self) -> Samples:
        """Warms up and samples."""
        first = self._batches.take(1)  # tells how long a sample takes
        self._warmup.append(first)
        if Slowdown.POWER_CAP in first.conditions.slowdowns:  # by the case before: this one has hardly begun
            self._device.rest(SETTLE_S)
        self._warm_up(until_s=WARM_SHARE * self._sampling.seconds)
        stopped = self._take_batches()
        median_s = statistics.median(self._counting)
        metrics, notes = self._beside(median_s)
        return Samples(
            batches=tuple(self._taken),
            seconds=tuple(self._counting),
            median_s=median_s,
            warmup=sum(len(batch.samples_s) for batch in self._warmup),
            stopped=stopped,
            note=_joined(self._batches.note, self._recovery.note, *notes),
            metrics=metrics,
            warmup_busy_s=sum(batch.busy_s for batch in self._warmup),
        )

    def _warm_up(self, until_s: float) -> None:
        """Takes samples until times are stable.

        Small batches are taken until the medians of two in a row agree: within one per cent, or within their scatter
        (the median absolute deviation). When ``until_s`` seconds of sampling are over it ends in any case: times that
        go on drifting are then in the samples, whose interval says so.
        """
        before: Batch | None = None
        while self._elapsed_s < until_s:
            batch = self._batches.take(WARM_BATCH)
            self._warmup.append(batch)
            if batch.rejected:
                continue
            if before and _agree(before, batch):
                break
            before = batch

    def _take_batches(self) -> str:
        """Takes batches until a rule has seen enough; returns why it stopped.

        Raises:
            DisturbedError: no batch was left undisturbed, and the GPU did not recover.
        """
        disturbed: list[tuple[str, ...]] = []  # by what, of each batch since the last good one
        while True:
            batch = self._batches.take(self._wanted)
            causes = disturbances(batch.conditions)
            if causes:
                batch = replace(batch, rejected=_joined(batch.rejected, *causes))
            self._taken.append(batch)
            if not batch.rejected:
                self._counting += batch.samples_s
            if stopped := self._reached():
                return stopped
            if causes:
                disturbed.append(causes)
            elif not batch.rejected:
                disturbed.clear()
            if len(disturbed) == DISTURBED_IN_A_ROW:
                if not self._recovery.wait([cause for causes in disturbed for cause in causes]):
                    return self._given_up()
                # The GPU was idle meanwhile.
                self._warm_up(until_s=self._elapsed_s + WARM_SHARE * self._sampling.seconds)
                disturbed.clear()

    def _given_up(self) -> str:
        if not self._counting:
            raise DisturbedError(
                f"{self._recovery.failure}, and no batch was left undisturbed",
                cure="see its temperature, its power and who else works on it: nvidia-smi -q -d TEMPERATURE,POWER,PIDS",
            )
        return self._recovery.failure

    def _reached(self) -> str:
        return first_reached(self._rules, self._counting, self._elapsed_s) if self._counting else ""

    @property
    def _wanted(self) -> int:
        """How many samples the next batch had best have: as many as there are, which doubles them."""
        taken = len(self._counting)
        return min(max(taken, self._sampling.least), self._sampling.samples - taken)

    @property
    def _elapsed_s(self) -> float:
        return self._device.now() - self._started - self._batches.lost_s - self._recovery.waited_s

    def _beside(self, median_s: float) -> tuple[dict[str, float], tuple[str, ...]]:
        """What is measured beside the times, and notes on it."""
        device, sample, batches = self._device, self._sample, self._batches
        metrics = auxiliary.cycles([batch for batch in self._taken if not batch.rejected], median_s)
        short, on_the_floor = auxiliary.of_a_short_kernel(device, sample, batches, median_s)
        joules, on_energy = auxiliary.energy(device, sample, batches) if self._sampling.energy else ({}, "")
        return {**metrics, **short, **joules}, (on_the_floor, on_energy)


def _agree(before: Batch, after: Batch) -> bool:
    """Whether times were stable over two batches of the warm-up."""
    median = statistics.median(after.samples_s)
    scatter = statistics.median(abs(seconds - median) for seconds in after.samples_s)
    return abs(median - statistics.median(before.samples_s)) <= max(WARM_AGREEMENT * median, scatter)


def _joined(*words: str) -> str:
    return "; ".join(filter(None, words))
