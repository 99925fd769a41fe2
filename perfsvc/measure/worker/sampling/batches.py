"""Batches of one case: how many samples fit behind the blocking kernel, and which batches are disturbed.

The blocking kernel holds the device's queue back until the host has queued a whole batch, so that no delay of the host
can come between two launches.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

from perfsvc.device.protocol import Device
from perfsvc.errors import LaunchError
from perfsvc.model import Batch, Conditions, Slowdown

FELL_BEHIND = "the host fell behind: the blocking kernel ended by itself"
SYNCHRONISES = "timed without the blocking kernel, since the work synchronises with the host"

BATCH_S = 0.05
"""Seconds that a batch may last, so that not more time passes between two readings of the device's conditions."""
TIMEOUTS_ALONE = 2
"""If the blocking kernel ends by itself on the first sample of this many batches in a row, the sample's own host code
waits for the device."""
LOWERED = 0.97
"""A clock below this share of the usual clock is lowered."""
SETTLE_S = 0.3
"""Seconds that a GPU rests after a case that lowered its clock."""
FIRST_REST_S = 0.5
"""Seconds of the first rest that a case gives a disturbed device."""
LONGEST_REST_S = 8.0

_UNKNOWN_OPERATIONS = 8
"""Operations of a sample if the number is unknown. If the sample queues more, the blocking kernel times out."""
_EVENTS = 2
"""Operations that time a sample."""
_EVICTION = 1
"""Operations that evict the cache before a sample."""
_BATCH_OPERATIONS = 8
"""Operations of a batch besides its samples: the blocking kernel, the events around the batch, the clock stamps."""
_UNLIMITED = 1 << 30


class BatchTaker:
    """Takes batches of one case.

    Args:
        device: the device that runs the samples.
        sample: queues the work of one sample; with ``clock="host"`` it also waits for the work.
        clock: ``device`` times samples by events behind the blocking kernel; ``host`` by the host's clock, end to end.
        evict_bytes: as ``Device.batch`` takes it.
        operations: how many operations a sample queues; None if that is not known.
        restore: as ``Device.batch`` takes it.
        seconds: returns the time of the last sample, for samples that time themselves; None if the device times them.

    Attributes:
        blocked: whether the next batch is queued behind the blocking kernel.
        lost_s: seconds lost in batches whose blocking kernel ended by itself.
        note: why samples with ``clock="device"`` are timed without the blocking kernel; otherwise empty.
    """

    def __init__(
        self,
        device: Device,
        sample: Callable[[], None],
        *,
        clock: Literal["device", "host"],
        evict_bytes: int,
        operations: int | None,
        restore: Callable[[], None] | None = None,
        seconds: Callable[[], float] | None = None,
    ) -> None:
        self.restore = restore
        self.seconds = seconds
        self._device = device
        self._sample = sample
        self._clock = clock
        self.evict_bytes = evict_bytes
        self.blocked = clock == "device"
        self.lost_s = 0.0
        self.note = ""
        self._sample_s = 0.0
        self._timeouts_alone = 0
        self._fitting = _fitting(device.queue_depth, operations, evict=evict_bytes > 0)
        if self.blocked and not self._fitting:
            self._stop_blocking(
                f"timed without the blocking kernel, since a sample queues {operations} operations and the device "
                f"takes {device.queue_depth}"
            )

    @property
    def most(self) -> int:
        """The most samples that a batch may have: it lasts ``BATCH_S`` at most, and fits in the device's queue."""
        lasting = int(BATCH_S / self._sample_s) if self._sample_s else _UNLIMITED
        return max(1, min(self._fitting, lasting))

    def take(self, count: int, before: Callable[[int], None] | None = None) -> Batch:
        """Time ``count`` samples, but at most ``most``; ``before`` is called before each sample with its number.

        If the blocking kernel ended by itself, because the host queued the samples too slowly, the batch is rejected,
        and later batches have at most half as many samples. If this happens in two batches of a single sample, later
        batches do without the blocking kernel.

        Raises:
            LaunchError: the clock gave an impossible time, such as 0.
        """
        started, count = self._device.now(), min(count, self.most)
        batch = self._device.batch(
            self._sample,
            count,
            clock=self._clock,
            evict_bytes=self.evict_bytes,
            blocked=self.blocked,
            before=before,
            restore=self.restore,
            seconds=self.seconds,
        )
        _require_possible(batch)
        if batch.blocked and batch.kept_ahead is False:
            self.lost_s += self._device.now() - started
            self._shrink(count, alone=len(batch.samples_s) == 1)
            return replace(batch, rejected=FELL_BEHIND)
        self._timeouts_alone = 0
        self._sample_s = (batch.busy_s or sum(batch.samples_s)) / len(batch.samples_s)
        return batch

    def _shrink(self, count: int, *, alone: bool) -> None:
        """Halve later batches, because the host fell behind the device in a batch of ``count`` samples.

        ``alone`` is True if the host fell behind at the first sample of the batch, when no other sample was queued. If
        this happens several times, something synchronises, and the GPU is not blocked any more.
        """
        self._fitting = max(1, count // 2)
        self._timeouts_alone += alone
        if self._timeouts_alone == TIMEOUTS_ALONE:
            self._stop_blocking(SYNCHRONISES)

    def _stop_blocking(self, note: str) -> None:
        self.blocked = False
        self.note = note
        self._fitting = _UNLIMITED  # the device runs samples as soon as they are queued


def _fitting(depth: int, operations: int | None, *, evict: bool) -> int:
    """Return how many samples the device's queue holds; 0 if a single sample does not fit."""
    if not depth:
        return _UNLIMITED
    if operations is None:
        return max(1, _fitting(depth, _UNKNOWN_OPERATIONS, evict=evict))
    # With a warm cache, an additional sample fills the cache first.
    before = _BATCH_OPERATIONS if evict else _BATCH_OPERATIONS + operations
    return max(0, depth - before) // (operations + _EVENTS + (_EVICTION if evict else 0))


def _require_possible(batch: Batch) -> None:
    """Raise ``LaunchError`` if a sample has no positive, finite time."""
    for seconds in batch.samples_s:
        if not 0 < seconds < math.inf:
            raise LaunchError(
                f"the clock gave {seconds:g} s for a sample", cure="choose a larger point, which takes longer"
            )


# --- disturbed batches -----------------------------------------------------------------------------------------------


def disturbances(conditions: Conditions) -> tuple[str, ...]:
    """Return what disturbed a batch that was taken under these conditions; empty if nothing did.

    A GPU at its power limit is not disturbed: the measured load itself takes it to the limit, every time.
    """
    causes = [str(slowdown) for slowdown in conditions.slowdowns if slowdown is not Slowdown.POWER_CAP]
    if conditions.others:
        causes.append(f"other processes at work ({_listed(conditions.others)})")
    if conditions.xids:
        causes.append(f"faults of the GPU (Xid {_listed(conditions.xids)})")
    if conditions.ecc_errors:
        causes.append(f"memory errors that could not be corrected ({conditions.ecc_errors})")
    return tuple(causes)


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


class ClockWatch:
    """Notices cases that lower a GPU's clock.

    For about 0.2 s after such a case, the clock of an H100 is up to 5 % above or 2 % below its usual value, also if the
    load did not reach the power limit (docs/measured/levels.md). So the next case waits for ``SETTLE_S``. The decision
    uses clocks and not times.

    Args:
        clock_hz: the GPU's usual clock by its description; 0 if unknown.
    """

    def __init__(self, clock_hz: float) -> None:
        self._clock_hz = clock_hz
        self._highest_hz = 0.0

    def lowered_by(self, batches: Sequence[Batch]) -> bool:
        """Return whether the clock was lowered in the last batches, those of one case."""
        clocks = [batch.conditions.sm_clock_hz for batch in batches if batch.conditions.sm_clock_hz]
        self._highest_hz = max([self._highest_hz, *clocks])
        usual_hz = min(self._clock_hz, self._highest_hz)  # the user may have locked a lower clock
        capped = any(Slowdown.POWER_CAP in batch.conditions.slowdowns for batch in batches)
        return capped or min(clocks, default=usual_hz) < LOWERED * usual_hz


class Recovery:
    """Lets a device rest until nothing disturbs it any more.

    Each rest of a case is twice as long as the one before. A device may cool while it idles and be too hot again as
    soon as it works; it then needs a longer rest.

    Args:
        device: the device.
        limit_s: seconds that a case may wait in total.

    Attributes:
        waited_s: seconds that the case has waited so far.
    """

    def __init__(self, device: Device, limit_s: float) -> None:
        self._device = device
        self._limit_s = limit_s
        self._rest_s = FIRST_REST_S
        self._causes: dict[str, str] = {}  # causes by their text without numbers
        self.waited_s = 0.0

    def wait(self, causes: Sequence[str]) -> bool:
        """Wait for the device to recover from ``causes``; returns False if the time limit of all waits is used up."""
        self._causes |= {cause.partition(" (")[0]: cause for cause in causes}
        while self.waited_s < self._limit_s:
            rest_s = min(self._rest_s, self._limit_s - self.waited_s)
            self._device.rest(rest_s)
            self.waited_s += rest_s
            self._rest_s = min(2 * self._rest_s, LONGEST_REST_S)
            if not disturbances(self._device.conditions()):
                return True
        return False

    @property
    def failure(self) -> str:
        """A message, without its full stop, that the device did not recover."""
        return f"the GPU did not recover from {self._reasons} within {self._limit_s:g} s"

    @property
    def note(self) -> str:
        """How long the case waited and why; empty if it did not wait."""
        if not self.waited_s:
            return ""
        return f"waited {self.waited_s:.3g} s for the GPU to recover from {self._reasons}"

    @property
    def _reasons(self) -> str:
        return " and ".join(self._causes.values())
