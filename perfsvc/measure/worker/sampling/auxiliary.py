"""What is measured beside the times of a case, and says why they are what they are."""

import statistics
from collections.abc import Callable, Sequence

from perfsvc import elf
from perfsvc.device.protocol import Device
from perfsvc.measure.worker.sampling.batches import Batches
from perfsvc.model import Batch, Launch, ReplayRecord

SHORT_S = 10e-6
"""Below this what the clock itself costs shows in a time."""
WORTH_NAMING = 0.2
"""Of a time: the share of the floor above which its reader is told."""
NEAR_THE_FLOOR = "a large share of the time is the clock's own floor (floor_s, back_to_back_s)"
"""Without numbers, which would differ from replica to replica and case to case, and are metrics anyway."""

_COUNT = 200
_ENERGY_S = 1.0
"""Seconds that samples have to fill for the GPU's energy counter, which is slow, to be good for one of them."""


def cycles(batches: Sequence[Batch], median_s: float) -> dict[str, float]:
    """``sm_cycles`` of a sample by the clocks that the batches saw; nothing where none saw any."""
    clocks = [batch.conditions.sm_clock_hz for batch in batches if batch.conditions.sm_clock_hz]
    return {"sm_cycles": median_s * statistics.median(clocks)} if clocks else {}


def registers(record: ReplayRecord, modules: Sequence[bytes]) -> dict[str, float]:
    """``registers`` of a thread of the case's hungriest kernel, by its binary; nothing where that does not tell it."""
    launches = [step for step in record.steps if isinstance(step, Launch)]
    of_module = {number: elf.kernel_registers(modules[number]) for number in {step.module for step in launches}}
    told = [of_module[step.module][step.entry] for step in launches if step.entry in of_module[step.module]]
    return {"registers": max(told)} if told else {}


def of_a_short_kernel(
    device: Device, sample: Callable[[], None], batches: Batches, median_s: float
) -> tuple[dict[str, float], str]:
    """What a kernel takes where no event stands beside it, and what events take with nothing between them.

    Only of what goes through the blocking kernel: launched as it comes, a short kernel waits for the host.

    Returns:
        ``back_to_back_s`` and ``floor_s``, and a note where the floor is a large share of the time; nothing of a
        kernel that is not short.
    """
    if not batches.blocked or median_s >= SHORT_S:
        return {}, ""
    count = min(_COUNT, batches.most)
    nothing = device.batch(lambda: None, count, clock="device", evict_bytes=batches.evict_bytes, blocked=True)
    apart_s = device.back_to_back(sample, count)
    if nothing.kept_ahead is False or apart_s is None:  # a host that stumbles now tells nothing of the device
        return {}, ""
    timer_overhead_s = statistics.median(nothing.samples_s)
    return {"back_to_back_s": apart_s, "timer_overhead_s": timer_overhead_s}, NEAR_THE_FLOOR * (
        timer_overhead_s > WORTH_NAMING * median_s
    )


def energy(device: Device, sample: Callable[[], None], batches: Batches) -> tuple[dict[str, float], str]:
    """``energy_j`` of a sample, or a note that says why there is none."""
    if not batches.blocked:
        return {}, "no energy: it is counted over samples behind the blocking kernel"
    joules = device.energy(sample, _ENERGY_S)
    return ({}, "this device does not count energy") if joules is None else ({"energy_j": joules}, "")
