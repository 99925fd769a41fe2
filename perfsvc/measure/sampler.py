"""Taking samples of one case: warm-up, then timed launches until a cap is reached."""

import contextlib
import gc
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from perfsvc.device.protocol import Device
from perfsvc.errors import LaunchError

BATCH = 10
"""Samples between two looks at the clock."""


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
        energy: measure the energy of a launch as well.
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
    """The samples of one case, in seconds, in the order they were taken, and why no more were."""

    seconds: tuple[float, ...]
    stopped: str


def take(
    device: Device,
    sample: Callable[[], None],
    sampling: Sampling,
    *,
    clock: Literal["device", "host"],
    cold: bool,
) -> Samples:
    """Samples the work that ``sample`` queues.

    The time cap counts all that sampling costs, cache eviction included; at least one sample is always taken.

    Raises:
        LaunchError: the clock gave a time that no launch can take.
    """
    with _without_garbage_collection():
        samples = _take(device, sample, sampling, clock=clock, cold=cold)
    if not all(0 < seconds < math.inf for seconds in samples.seconds):
        raise LaunchError(
            f"the clock gave {min(samples.seconds):g} s for a sample", cure="choose a larger point: it is over too soon"
        )
    return samples


@contextlib.contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """A collection amid the samples would delay a launch, or free an earlier case's modules on the device."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _take(
    device: Device, sample: Callable[[], None], sampling: Sampling, *, clock: Literal["device", "host"], cold: bool
) -> Samples:
    deadline = time.monotonic() + sampling.seconds
    for _ in range(sampling.warmup):
        device.time(sample, 1, clock=clock, cold=cold)
        if time.monotonic() > deadline:
            break
    # A slow case gets single samples, so that it overruns the time cap by no more than one of them.
    batch = BATCH if time.monotonic() < deadline else 1
    seconds: list[float] = []
    while len(seconds) < sampling.samples:
        seconds += device.time(sample, min(batch, sampling.samples - len(seconds)), clock=clock, cold=cold)
        if time.monotonic() > deadline and len(seconds) < sampling.samples:
            return Samples(tuple(seconds), f"time cap of {sampling.seconds:g} s")
    return Samples(tuple(seconds), f"sample cap of {sampling.samples}")
