"""Samples of one case: warm up, then batch after batch until a stopping rule is satisfied."""

import contextlib
import gc
import math
import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from perfsvc.device.protocol import Device
from perfsvc.errors import DisturbedError
from perfsvc.measure.protocol.messages import Sampling
from perfsvc.measure.worker.sampling import auxiliary
from perfsvc.measure.worker.sampling.batches import BatchTaker, Recovery, disturbances
from perfsvc.measure.worker.sampling.places import Places, at_level
from perfsvc.measure.worker.sampling.stopping import Precision, SampleCap, StoppingRule, TimeCap, first_reached
from perfsvc.model import Batch, CacheState

WARM_BATCH = 5
"""Samples of a warm-up batch."""
WARM_AGREEMENT = 0.01
"""Two warm-up batches agree if their medians differ by no more than this share, or no more than their scatter."""
WARM_SHARE = 0.25
"""Share of the time cap that the first warm-up may take, and each later warm-up after the device has recovered."""
BRIEF_BATCH = 20
"""Samples of a configuration in one round of tuning."""
BRIEF_ATTEMPTS = 8
"""How often a batch of tuning is repeated if the host fell behind the device."""
DISTURBED_IN_A_ROW = 3
"""Disturbed batches after which a case waits for its device to recover."""
UNKNOWN_CACHE_BYTES = 128 << 20
"""The L2 cache that is assumed if a device does not report its size: no GPU has a larger one (B200: 126 MB)."""


@dataclass(frozen=True, slots=True)
class Samples:
    """The samples of one case. The defaults are those of a case that is not timed.

    Attributes:
        batches: in the order they were taken, the rejected ones included.
        seconds: the times of the samples in the batches that were not rejected, in the order they were taken, without
            the differences between places (``at_level``).
        median_s: the median of ``seconds``.
        places_s: the median at each place of the arrays.
        warmup: how many samples were taken for warm-up and thrown away.
        stopped: why sampling stopped.
        note: what the reader of the times must know; empty if there is nothing.
        metrics: auxiliary metrics by name.
        warmup_busy_s: seconds that the device worked on the warm-up.
    """

    batches: tuple[Batch, ...] = ()
    seconds: tuple[float, ...] = ()
    median_s: float = math.nan
    places_s: tuple[float, ...] = ()
    warmup: int = 0
    stopped: str = ""
    note: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)
    warmup_busy_s: float = 0.0

    @property
    def busy_s(self) -> float:
        """Seconds that the device worked on all batches, warm-up included."""
        return self.warmup_busy_s + sum(batch.busy_s for batch in self.batches)


def take_samples(
    device: Device,
    sample: Callable[[], None],
    sampling: Sampling,
    *,
    clock: Literal["device", "host"],
    cache: CacheState,
    operations: int | None,
    places: Places | None = None,
    restore: Callable[[], None] | None = None,
    seconds: Callable[[], float] | None = None,
) -> Samples:
    """Take samples of the work that ``sample`` queues.

    The time cap counts all the time that sampling takes, cache eviction and warm-up included. It does not count batches
    that the host queued too slowly, nor the wait for the device to recover. The result has at least one batch that was
    not rejected.

    Args:
        device: the device that runs the samples.
        sample: queues the work of one sample; with ``clock="host"`` it also waits for the work.
        sampling: when to stop, and what else to measure.
        clock: ``device`` times samples by events on the device's stream; ``host`` by the host's clock, end to end.
        cache: the state of the cache before each sample.
        operations: how many operations a sample queues; None if that is not known.
        places: the places of the arrays, over which the samples are spread; None if the arrays stay where they are.
        restore: queues copies that undo what a sample changes in its inputs; None if it changes none.
        seconds: returns the time of the last sample, for samples that time themselves; None if the device times them.

    Raises:
        LaunchError: the clock gave an impossible time, such as 0.
        DisturbedError: the device was disturbed during every batch, and did not recover.
    """
    evict_bytes = bytes_to_evict(device, sampling, cache)
    with _without_garbage_collection():
        batches = BatchTaker(
            device,
            sample,
            clock=clock,
            evict_bytes=evict_bytes,
            operations=operations,
            restore=restore,
            seconds=seconds,
        )
        return _Sampler(device, sample, batches, sampling, places or Places()).take()


def brief_median_s(
    device: Device,
    sampling: Sampling,
    cache: CacheState,
    sample: Callable[[], None],
    *,
    restore: Callable[[], None] | None = None,
    seconds: Callable[[], float] | None = None,
) -> float:
    """Return the median of a few samples: to choose between configurations, or to explain a time.

    The samples are taken as those of a case: behind the blocking kernel, and in the case's cache state.

    Args:
        device: the device that runs the samples.
        sampling: how the case will be sampled.
        cache: the state of the cache before each sample.
        sample: queues the work of one sample.
        restore: as in ``take_samples``; ``seconds`` likewise.
        seconds: see ``restore``.
    """
    evict_bytes = bytes_to_evict(device, sampling, cache)
    batches = BatchTaker(
        device,
        sample,
        clock="device",
        evict_bytes=evict_bytes,
        operations=None,
        restore=restore,
        seconds=seconds,
    )
    batches.take(1)  # shows how long a sample takes, which limits the next batches
    batch = batches.take(BRIEF_BATCH)
    for _ in range(BRIEF_ATTEMPTS):
        if not batch.rejected:
            break
        batch = batches.take(BRIEF_BATCH)
    return statistics.median(batch.samples_s)


def bytes_to_evict(device: Device, sampling: Sampling, cache: CacheState) -> int:
    """Return how many bytes are written before each sample."""
    cache_bytes = device.info.l2_bytes or UNKNOWN_CACHE_BYTES
    return int(sampling.evict * cache_bytes) if cache is CacheState.COLD else 0


@contextlib.contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Prevent garbage collections, which would delay a launch or free an earlier case's modules on the device."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class _Sampler:
    """Takes the samples of one case; see ``take_samples``."""

    def __init__(
        self, device: Device, sample: Callable[[], None], batches: BatchTaker, sampling: Sampling, places: Places
    ) -> None:
        self._device = device
        self._sample = sample
        self._batches = batches
        self._sampling = sampling
        self._places = places
        self._rules: tuple[StoppingRule, ...] = (
            Precision(sampling.precision, sampling.least, sampling.least_s),
            SampleCap(sampling.samples),
            TimeCap(sampling.seconds),
        )
        self._recovery = Recovery(device, sampling.recovery_s)
        self._started = device.now()
        self._warmup: list[Batch] = []
        self._taken: list[Batch] = []
        self._counting: list[float] = []  # the samples of the batches that were not rejected
        self._counting_places: list[int] = []  # the place of each of them

    def take(self) -> Samples:
        """Warm up, take batches until a stopping rule is satisfied, and measure the auxiliary metrics."""
        self._warmup.append(self._batches.take(1))  # shows how long a sample takes
        self._warm_up(until_s=WARM_SHARE * self._sampling.seconds)
        stopped = self._take_batches()
        seconds, places_s = at_level(self._counting, self._counting_places)
        median_s = statistics.median(seconds)
        metrics, notes = self._auxiliary(median_s)
        return Samples(
            batches=tuple(self._taken),
            seconds=seconds,
            median_s=median_s,
            places_s=places_s,
            warmup=sum(len(batch.samples_s) for batch in self._warmup),
            stopped=stopped,
            note=_joined(self._batches.note, self._recovery.note, *notes),
            metrics=metrics,
            warmup_busy_s=sum(batch.busy_s for batch in self._warmup),
        )

    def _warm_up(self, until_s: float) -> None:
        """Take small batches until the times are stable.

        The times are stable when the medians of two batches in a row agree: within one per cent, or within their
        scatter (the median absolute deviation). The warm-up ends in any case when sampling has taken ``until_s``
        seconds. If the times still drift then, the confidence interval of the samples shows the drift.
        """
        previous: Batch | None = None
        while self._elapsed_s < until_s:
            batch = self._batches.take(WARM_BATCH)
            self._warmup.append(batch)
            if batch.rejected:
                continue
            if previous and _agree(previous, batch):
                break
            previous = batch

    def _take_batches(self) -> str:
        """Take batches until a stopping rule is satisfied; return why sampling stopped.

        Raises:
            DisturbedError: every batch was disturbed, and the device did not recover.
        """
        disturbed: list[tuple[str, ...]] = []  # the causes, for each batch since the last good one
        while True:
            places = self._places.of_batch(min(self._next_count, self._batches.most))
            batch = self._batches.take(len(places), before=self._places.mover(places))
            causes = disturbances(batch.conditions)
            if causes:
                batch = replace(batch, rejected=_joined(batch.rejected, *causes))
            self._taken.append(batch)
            if not batch.rejected:
                self._counting += batch.samples_s
                self._counting_places += places
            if stopped := self._stopped():
                return stopped
            if causes:
                disturbed.append(causes)
            elif not batch.rejected:
                disturbed.clear()
            if len(disturbed) == DISTURBED_IN_A_ROW:
                if not self._recovery.wait([cause for causes in disturbed for cause in causes]):
                    return self._give_up()
                # The device was idle while it recovered.
                self._warm_up(until_s=self._elapsed_s + WARM_SHARE * self._sampling.seconds)
                disturbed.clear()

    def _stopped(self) -> str:
        """Return why sampling stops now; empty if it goes on."""
        if not self._counting:
            return ""
        seconds, _ = at_level(self._counting, self._counting_places)
        return first_reached(self._rules, seconds, self._elapsed_s)

    def _give_up(self) -> str:
        """Return why sampling ends without recovery; raises ``DisturbedError`` if every batch was rejected."""
        if not self._counting:
            raise DisturbedError(
                f"{self._recovery.failure}, and every batch was disturbed",
                cure="see the GPU's temperature, power and processes: nvidia-smi -q -d TEMPERATURE,POWER,PIDS",
            )
        return self._recovery.failure

    @property
    def _next_count(self) -> int:
        """How many samples the next batch should have: as many as all earlier batches that were not rejected."""
        taken = len(self._counting)
        return min(max(taken, self._sampling.least), self._sampling.samples - taken)

    @property
    def _elapsed_s(self) -> float:
        return self._device.now() - self._started - self._batches.lost_s - self._recovery.waited_s

    def _auxiliary(self, median_s: float) -> tuple[dict[str, float], tuple[str, ...]]:
        """Measure the auxiliary metrics; return them by name, and notes."""
        device, sample, batches = self._device, self._sample, self._batches
        metrics = auxiliary.cycles([batch for batch in self._taken if not batch.rejected], median_s)
        short, overhead_note = auxiliary.short_kernel(device, sample, batches, median_s)
        joules, energy_note = auxiliary.energy(device, sample, batches) if self._sampling.energy else ({}, "")
        return {**metrics, **short, **joules}, (overhead_note, energy_note)


def _agree(before: Batch, after: Batch) -> bool:
    """Return whether the medians of two warm-up batches differ by at most ``WARM_AGREEMENT`` or by their scatter."""
    median = statistics.median(after.samples_s)
    scatter = statistics.median(abs(seconds - median) for seconds in after.samples_s)
    return abs(median - statistics.median(before.samples_s)) <= max(WARM_AGREEMENT * median, scatter)


def _joined(*texts: str) -> str:
    return "; ".join(filter(None, texts))
