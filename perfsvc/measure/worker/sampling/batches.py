"""Batches of samples: how many fit, which ones are disturbed, and waiting for the device to recover."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

from perfsvc.device.protocol import Device
from perfsvc.errors import LaunchError
from perfsvc.model import Batch, Conditions, Slowdown

FELL_BEHIND = "the host fell behind: the blocking kernel opened by itself"
SYNCHRONISES = "timed without the blocking kernel, since the work synchronises with the host"

BATCH_S = 0.05
"""Seconds that a batch may last, so that the GPU is looked at this often."""
TRIPS_ALONE = 2
"""How often the blocking kernel opens by itself on a single sample before its work is known to wait for the device."""

_UNKNOWN_OPERATIONS = 8
"""What a sample is taken to queue where that cannot be known: if it is more, the blocking kernel tells."""
_EVENTS = 2
_EVICTION = 2
_AUXILIARY = 8
"""Operations of a batch beside its samples: the blocking kernel, the events around all of it, the clock's stamps."""
_ENDLESS = 1 << 30


class Batches:
    """Takes batches of one case.

    Args:
        device: where.
        sample: queues the work of one sample; with ``clock="host"`` it also waits for it.
        clock: by whom it is timed: between events behind the blocking kernel, or end to end by the host.
        evict_bytes: as ``Device.batch`` takes it.
        operations: how many a sample queues; None where that is not known.

    Attributes:
        blocked: whether the next batch goes behind the blocking kernel.
        lost_s: seconds that went by at gates that opened by themselves.
        note: why a device's clock is read without the blocking kernel; empty where it is not.
    """

    def __init__(
        self,
        device: Device,
        sample: Callable[[], None],
        *,
        clock: Literal["device", "host"],
        evict_bytes: int,
        operations: int | None,
    ) -> None:
        self._device = device
        self._sample = sample
        self._clock = clock
        self.evict_bytes = evict_bytes
        self.blocked = clock == "device"
        self.lost_s = 0.0
        self.note = ""
        self._apiece_s = 0.0
        self._trips_alone = 0
        self._fitting = _fitting(device.queue_depth, operations, evict=evict_bytes > 0)
        if self.blocked and not self._fitting:
            self._go_on_ungated(
                f"timed without the blocking kernel, since a sample queues {operations} operations and the device takes "
                f"{device.queue_depth}"
            )

    @property
    def most(self) -> int:
        """How many samples a batch may have: as many as last ``BATCH_S`` at most, and as the queue would hold."""
        lasting = int(BATCH_S / self._apiece_s) if self._apiece_s else _ENDLESS
        return max(1, min(self._fitting, lasting))

    def take(self, count: int) -> Batch:
        """Times ``count`` samples, or as many as a batch may have.

        Where the blocking kernel opened by itself the batch is rejected, and the next ones are half as large as it was meant to
        be; where that happens to a single sample twice, they are ungated.

        Raises:
            LaunchError: the clock gave a time that no launch can take.
        """
        started, count = self._device.now(), min(count, self.most)
        batch = self._device.batch(
            self._sample, count, clock=self._clock, evict_bytes=self.evict_bytes, blocked=self.blocked
        )
        _require_possible(batch)
        if batch.blocked and batch.kept_ahead is False:
            self.lost_s += self._device.now() - started
            self._shrink(count, alone=len(batch.samples_s) == 1)
            return replace(batch, rejected=FELL_BEHIND)
        self._trips_alone = 0
        self._apiece_s = (batch.busy_s or sum(batch.samples_s)) / len(batch.samples_s)
        return batch

    def _shrink(self, count: int, *, alone: bool) -> None:
        self._fitting = max(1, count // 2)
        self._trips_alone += alone
        if self._trips_alone == TRIPS_ALONE:
            self._go_on_ungated(SYNCHRONISES)

    def _go_on_ungated(self, note: str) -> None:
        self.blocked = False
        self.note = note
        self._fitting = _ENDLESS  # the device takes them as they come


def _fitting(depth: int, operations: int | None, *, evict: bool) -> int:
    """How many samples the device's queue holds; zero where it does not hold one of them."""
    if not depth:
        return _ENDLESS
    if operations is None:
        return max(1, _fitting(depth, _UNKNOWN_OPERATIONS, evict=evict))
    # Where the cache stays warm, one more sample comes first.
    before = _AUXILIARY if evict else _AUXILIARY + operations
    return max(0, depth - before) // (operations + _EVENTS + (_EVICTION if evict else 0))


def _require_possible(batch: Batch) -> None:
    for seconds in batch.samples_s:
        if not 0 < seconds < math.inf:
            raise LaunchError(
                f"the clock gave {seconds:g} s for a sample", cure="choose a larger point: it is over too soon"
            )


FIRST_REST_S = 0.5
LONGEST_REST_S = 8.0


def disturbances(conditions: Conditions) -> tuple[str, ...]:
    """What spoiled the times taken under these conditions; nothing where they are good.

    A GPU at its power limit is not disturbed: the load that is measured took it there, and would again.
    """
    found = [str(slowdown) for slowdown in conditions.slowdowns if slowdown is not Slowdown.POWER_CAP]
    if conditions.others:
        found.append(f"other processes at work ({_listed(conditions.others)})")
    if conditions.xids:
        found.append(f"faults of the GPU (Xid {_listed(conditions.xids)})")
    if conditions.ecc_errors:
        found.append(f"memory errors that could not be corrected ({conditions.ecc_errors})")
    return tuple(found)


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


class Recovery:
    """Lets a GPU rest until nothing disturbs it any more.

    Each rest is twice as long as the one before, over all waits of a case: a GPU that is well while it idles and
    too hot as soon as it works needs more than it was given.

    Args:
        device: whose GPU.
        limit_s: how long a case may wait in all.

    Attributes:
        waited_s: how long it has waited.
    """

    def __init__(self, device: Device, limit_s: float) -> None:
        self._device = device
        self._limit_s = limit_s
        self._rest_s = FIRST_REST_S
        self._causes: dict[str, str] = {}  # by what they are, whichever numbers they come with
        self.waited_s = 0.0

    def wait(self, causes: Sequence[str]) -> bool:
        """Waits for the GPU to recover from ``causes``; false where it has not by the end of all waiting."""
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
        """That the GPU did not recover, as a sentence without its full stop."""
        return f"the GPU did not recover from {self._what_for} within {self._limit_s:g} s"

    @property
    def note(self) -> str:
        """How long it waited and what for; empty where it did not."""
        if not self.waited_s:
            return ""
        return f"waited {self.waited_s:.3g} s for the GPU to recover from {self._what_for}"

    @property
    def _what_for(self) -> str:
        return " and ".join(self._causes.values())
