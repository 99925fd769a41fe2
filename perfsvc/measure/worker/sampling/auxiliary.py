"""Auxiliary metrics: measured besides the times of a case, to explain them."""

import contextlib
import statistics
from collections.abc import Callable, Iterable, Sequence

from perfsvc import elf, entries
from perfsvc.device.protocol import Device
from perfsvc.measure.worker.sampling.batches import BatchTaker
from perfsvc.model import Batch, Launch, ReplayRecord

SHORT_S = 10e-6
"""Seconds of a sample below which the timer overhead matters."""
WORTH_A_NOTE = 0.2
"""The share of the median that the timer overhead must exceed to be noted."""
NEAR_TIMER_OVERHEAD = "a large share of the time is the timer's own overhead (timer_overhead_s, back_to_back_s)"
"""The note has no numbers, because they differ between replicas and between cases. The metrics have the numbers."""

_COUNT = 200
"""Samples for the metrics of a short kernel."""
_ENERGY_S = 1.0
"""Seconds of samples for one reading of the GPU's energy counter, which is slow."""


def cycles(batches: Sequence[Batch], median_s: float) -> dict[str, float]:
    """Return ``sm_cycles`` of a sample, from the clocks read during the batches; empty if no clock was read."""
    clocks = [batch.conditions.sm_clock_hz for batch in batches if batch.conditions.sm_clock_hz]
    return {"sm_cycles": median_s * statistics.median(clocks)} if clocks else {}


def registers(record: ReplayRecord, modules: Sequence[bytes]) -> dict[str, float]:
    """Return the metric ``registers``: the most registers per thread of any kernel; empty if unknown."""
    launches = [step for step in record.steps if isinstance(step, Launch)]
    by_module = {number: elf.kernel_registers(modules[number]) for number in {step.module for step in launches}}
    symbols = [(step.module, entries.symbol(modules[step.module], step.entry)) for step in launches]
    counts = [by_module[number][symbol] for number, symbol in symbols if symbol in by_module[number]]
    return {"registers": max(counts)} if counts else {}


def registers_of_cubins(files: Iterable[bytes]) -> dict[str, float]:
    """Return the metric ``registers`` of the kernels that Python launched, from their cubins among some files."""
    counts: list[int] = []
    for content in files:
        with contextlib.suppress(ValueError, IndexError):  # a damaged cubin
            counts += elf.kernel_registers(content).values()
    return {"registers": max(counts)} if counts else {}


def short_kernel(
    device: Device, sample: Callable[[], None], batches: BatchTaker, median_s: float
) -> tuple[dict[str, float], str]:
    """Time a short kernel without events between its launches, and the events without a kernel.

    Both measurements need a kernel that blocks the stream while the host queues the launches: without it, a short
    kernel waits for the host.

    Returns:
        ``back_to_back_s`` and ``timer_overhead_s``, and a note if the overhead is a large share of the time; both are
        empty if the kernel is not short, or its times are not reliable, or a sample times itself. There is no
        ``back_to_back_s`` if the kernel changes its inputs: each launch would find what the launch before left.
    """
    if batches.seconds or not batches.blocked or median_s >= SHORT_S:
        return {}, ""
    count = min(_COUNT, batches.most)
    empty = device.batch(
        lambda: None, count, clock="device", evict_bytes=batches.evict_bytes, blocked=True, restore=batches.restore
    )
    back_to_back_s = None if batches.restore else device.back_to_back(sample, count)
    if empty.kept_ahead is False or (back_to_back_s is None and not batches.restore):
        return {}, ""  # the host fell behind: the times are not the device's
    overhead_s = statistics.median(empty.samples_s)
    apart = {} if back_to_back_s is None else {"back_to_back_s": back_to_back_s}
    metrics = {**apart, "timer_overhead_s": overhead_s}
    return metrics, NEAR_TIMER_OVERHEAD if overhead_s > WORTH_A_NOTE * median_s else ""


def energy(device: Device, sample: Callable[[], None], batches: BatchTaker) -> tuple[dict[str, float], str]:
    """Return the energy of a sample as ``energy_j``, or a note why it is unknown."""
    if not batches.blocked:
        return {}, "no energy: it is measured only for samples behind the blocking kernel"
    if batches.seconds:
        return {}, "no energy: it would be that of the work between the steps, too"
    if batches.restore:
        return {}, "no energy: it would be that of restoring the arrays that the case changes in place, too"
    joules = device.energy(sample, _ENERGY_S)
    return ({}, "this device does not count energy") if joules is None else ({"energy_j": joules}, "")
