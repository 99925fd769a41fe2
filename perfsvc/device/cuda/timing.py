"""Time samples on a stream: each between two events, queued behind the blocking kernel and released together.

The blocking kernel holds the stream back until the host has queued all that must run without interruption. A delay of
the host (a busy machine, Python itself) then delays only the release, and never falls between an event and its launch,
where it would count as the kernel's time.
"""

import contextlib
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pycuda.driver as drv

from perfsvc.device.cuda.helper_kernels import HelperKernels, mapped
from perfsvc.device.cuda.memory import Eviction
from perfsvc.device.memory import BLOCKING_KERNEL, STAMP
from perfsvc.model import Batch, Conditions

LIMIT_S = 1.0
"""Seconds after which the blocking kernel ends by itself: the host is then waiting for it instead of queueing."""

_SECONDS_PER_MS = 1e-3
_NS_PER_S = 1e9
_HZ_PER_GHZ = 1e9
_MIN_STAMP_INTERVAL_NS = 1_000_000
"""The least time between two stamps: the device's clock advances in steps of up to a thousand nanoseconds."""
_READING_S = 0.003
"""Seconds that a reading of the GPU's conditions takes."""
_SLOTS = 1024
"""More multiprocessors than any GPU has."""
_ENERGY_CHUNK_S = 0.02
"""Seconds of work between two readings of the energy counter, which advances every few tens of milliseconds."""

Sample = Callable[[], None]


class BlockingKernel:
    """Blocks one stream until the host releases it. One object serves all samples.

    As a context manager it blocks the stream from the beginning of the ``with`` block to its end.
    """

    def __init__(self, helper_kernels: HelperKernels, stream: Any) -> None:
        self._helper_kernels = helper_kernels
        self._stream = stream
        self._words, self._address = mapped(2, np.uint32)  # the ticket that was released, the ticket that timed out
        self._ticket = 0

    def launch(self) -> None:
        """Queue the blocking kernel: everything queued after it waits until ``release``."""
        self._ticket += 1
        self._helper_kernels.launch(
            self._stream,
            BLOCKING_KERNEL,
            self._address,
            np.uint64(int(self._address) + self._words.itemsize),
            np.uint32(self._ticket),
            np.uint64(LIMIT_S * _NS_PER_S),
        )

    def release(self) -> None:
        """Let the stream continue: the kernel ends."""
        self._words[0] = self._ticket

    def __enter__(self) -> None:
        self.launch()

    def __exit__(self, *_: object) -> None:
        self.release()

    @property
    def held(self) -> bool:
        """Whether the last launch blocked the stream until ``release``; valid once the stream is synchronised."""
        return bool(self._words[1] != self._ticket)


class SampleTimer:
    """Times samples on one stream.

    Args:
        helper_kernels: perfsvc's own kernels.
        stream: the stream that samples are queued on.
        eviction: empties the cache.
        read_conditions: returns the GPU's conditions. It is called in one thread only, so that each reading reports
            what is new since the previous reading.
    """

    def __init__(
        self,
        helper_kernels: HelperKernels,
        stream: Any,
        eviction: Eviction,
        read_conditions: Callable[[], Conditions],
    ) -> None:
        self._helper_kernels = helper_kernels
        self._stream = stream
        self._eviction = eviction
        self.blocking_kernel = BlockingKernel(helper_kernels, stream)
        self._pairs = [(drv.Event(), drv.Event()) for _ in range(2)]
        self._begin = drv.Event()
        self._preparation_s = 0.0  # time to empty or fill the cache before a batch's first sample
        self._read_conditions = read_conditions
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="perfsvc-conditions")
        # Cycles and nanoseconds of each multiprocessor, before and after a batch.
        self._stamps, self._stamps_address = mapped(2 * _SLOTS * 2, np.uint64)

    def batch(
        self,
        sample: Sample,
        count: int,
        *,
        evict_bytes: int,
        blocked: bool,
        before: Callable[[int], None] | None,
        restore: Callable[[], None] | None = None,
        seconds: Callable[[], float] | None = None,
    ) -> Batch:
        """Time ``count`` samples one by one; ``before`` is called before each sample with its number.

        With ``seconds``, the samples time themselves, and the events around them only show how long the device worked.

        The GPU's conditions are read towards the end of the batch. A batch that is shorter than a reading, such as a
        warm-up batch, has no conditions. If the host does not queue a sample in time, so that the blocking kernel ends
        by itself, the batch ends early.
        """
        reading: Future[Conditions] | None = None
        done, held, ahead = 0, True, True  # ahead: the host has queued each sample before the device began it
        samples_s: list[float] = []
        own_s: list[float] = []
        started = time.perf_counter()
        self._stamps[:] = 0
        self._stamp(0)
        while done < count and held:
            if reading is None and _is_time_to_read(done, count, time.perf_counter() - started):
                reading = self._thread.submit(self._read_conditions)
            if before:
                before(done)
            if evict_bytes:
                self._eviction.prepare(evict_bytes)
            with self.blocking_kernel if blocked else contextlib.nullcontext():
                start = self._queue(sample, restore, evict_bytes, number=done)
                ahead &= blocked or not start.query()
            if done:  # while the device runs the next sample
                samples_s.append(self._sample_s(done - 1))
            self._stream.synchronize()
            if seconds:
                own_s.append(seconds())
            held = not blocked or self.blocking_kernel.held
            done += 1
        samples_s.append(self._sample_s(done - 1))
        self._stamp(1)
        self._stream.synchronize()
        long_enough = time.perf_counter() - started >= _READING_S
        conditions = reading.result() if reading else self.conditions() if long_enough else Conditions()
        busy_s = done * self._preparation_s + sum(samples_s)
        return Batch(
            tuple(own_s or samples_s), blocked, held and ahead, busy_s, conditions=self._with_clock(conditions)
        )

    def _sample_s(self, number: int) -> float:
        """Return the seconds of a finished sample; for the first sample, note the seconds of its preparation too."""
        start, end = self._pairs[number % 2]
        if number == 0:
            self._preparation_s = _seconds(self._begin, start)
        return _seconds(start, end)

    def _queue(self, sample: Sample, restore: Callable[[], None] | None, evict_bytes: int, *, number: int) -> Any:
        """Queue what prepares the inputs and the cache, then a sample between two events; return the first event.

        The preparation and the sample are queued behind the blocking kernel together, so that the time between them is
        constant: a pause of 1 ms between emptying the cache and the launch changed the time of a transposition by up to
        0.6 % (H100; docs/measured/timing.md). Nothing is queued behind the sample until the sample is over: while a
        device fetches the next operation, the running kernel is slower by 0.6 to 1 µs.
        """
        start, end = self._pairs[number % 2]
        if number == 0:
            self._begin.record(self._stream)
        if restore:
            restore()
        if evict_bytes:
            self._eviction.queue(evict_bytes)
        else:
            sample()  # brings its data into the cache
            if restore:
                restore()
        start.record(self._stream)
        sample()
        end.record(self._stream)
        return start

    def conditions(self) -> Conditions:
        """Return the GPU's conditions, and what is new since the last reading."""
        return self._thread.submit(self._read_conditions).result()

    def discard_conditions(self) -> None:
        """Start a reading and ignore it, so that the next reading reports only what happens from now on."""
        self._thread.submit(self._read_conditions)

    def close(self) -> None:
        """Wait for the last reading of the GPU's conditions."""
        self._thread.shutdown()

    def host_batch(
        self,
        sample: Sample,
        count: int,
        *,
        evict_bytes: int,
        before: Callable[[int], None] | None,
        restore: Callable[[], None] | None,
    ) -> Batch:
        """Time ``count`` samples end to end by the host's clock; before each sample, the device is idle."""
        samples_s = []
        self._stamps[:] = 0
        started = time.perf_counter()
        self._stamp(0)
        for number in range(count):
            if before:
                before(number)
            if restore:
                restore()
            if evict_bytes:
                self._eviction.prepare(evict_bytes)
                self._eviction.queue(evict_bytes)
            drv.Context.synchronize()
            start = time.perf_counter()
            sample()
            drv.Context.synchronize()
            samples_s.append(time.perf_counter() - start)
        self._stamp(1)
        self._stream.synchronize()
        busy_s = time.perf_counter() - started
        return Batch(tuple(samples_s), busy_s=busy_s, conditions=self._with_clock(self.conditions()))

    def back_to_back(self, sample: Sample, count: int) -> float | None:
        """Return seconds per sample with nothing between samples; None if the host did not queue them in time."""
        with self.blocking_kernel:
            self._queue_in_a_row(sample, count)
        self._stream.synchronize()
        return _seconds(*self._pairs[0]) / count if self.blocking_kernel.held else None

    def _queue_in_a_row(self, sample: Sample, count: int) -> None:
        """Queue a sample, and then ``count`` more between two events."""
        start, end = self._pairs[0]
        sample()
        start.record(self._stream)
        for _ in range(count):
            sample()
        end.record(self._stream)

    def check_while_blocked(self, sample: Sample, seconds: float, check: Callable[[], bool]) -> bool:
        """Queue a sample behind the blocking kernel, and return what ``check`` returns while the stream is blocked.

        Returns False if the blocking kernel ended by itself: then the sample waited for the blocking kernel, so it runs
        on this stream.
        """
        with self.blocking_kernel:
            sample()
            time.sleep(seconds)
            checked = check()
        self._stream.synchronize()
        return checked and self.blocking_kernel.held

    def energy(self, sample: Sample, counter: Callable[[], float | None], seconds: float) -> float | None:
        """Return joules per sample, measured between two increases of the energy counter at least ``seconds`` apart.

        Launching a kernel takes the host some ten microseconds. If kernels are shorter, the result includes the energy
        of the waiting GPU.

        Args:
            sample: queues the work of one sample.
            counter: returns the joules that the GPU has consumed so far; None if it does not count them.
            seconds: measure over at least this time.

        Returns:
            None if the counter is unavailable or does not advance.
        """
        count = max(1, int(_ENERGY_CHUNK_S / self._run_in_a_row(sample, 1)))
        last, done = counter(), 0
        first_step: tuple[float, float, int] | None = None  # when, joules, samples until then
        deadline = time.monotonic() + 2 * seconds + 1
        while last is not None and time.monotonic() < deadline:
            self._run_in_a_row(sample, count)
            done += count + 1
            now, joules = time.monotonic(), counter()
            if joules is None or joules == last:
                last = joules
                continue
            last = joules
            if first_step is None:
                first_step = (now, joules, done)
            elif now - first_step[0] >= seconds:
                return (joules - first_step[1]) / (done - first_step[2])
        return None

    def _run_in_a_row(self, sample: Sample, count: int) -> float:
        """Run a sample and then ``count`` more, as fast as the host can queue them; return seconds per sample."""
        self._queue_in_a_row(sample, count)
        self._stream.synchronize()
        return _seconds(*self._pairs[0]) / count

    def _stamp(self, which: int) -> None:
        """Queue a clock stamp of every multiprocessor; ``which`` is 0 before a batch and 1 after it."""
        address = np.uint64(int(self._stamps_address) + which * self._stamps.nbytes // 2)
        blocks = self._helper_kernels.multiprocessors
        self._helper_kernels.launch(self._stream, STAMP, address, np.uint32(_SLOTS), blocks=blocks)

    def _with_clock(self, conditions: Conditions) -> Conditions:
        """Add the median clock of the multiprocessors that wrote both stamps, if enough time passed between them."""
        before, after = self._stamps.reshape(2, _SLOTS, 2).astype(np.int64)
        passed = (after - before)[(before[:, 1] > 0) & (after[:, 1] > 0)]
        passed = passed[passed[:, 1] >= _MIN_STAMP_INTERVAL_NS]
        if not len(passed):
            return conditions
        return replace(conditions, sm_clock_hz=float(np.median(passed[:, 0] / passed[:, 1])) * _HZ_PER_GHZ)


def _is_time_to_read(done: int, count: int, elapsed_s: float) -> bool:
    """Return True if the remaining samples take no longer than a reading of the conditions.

    Return False if the whole batch is shorter than a reading. A sample's time is estimated from the samples so far.
    """
    if not done:
        return False
    per_sample_s = elapsed_s / done
    return (count - done) * per_sample_s <= _READING_S <= count * per_sample_s


def _seconds(start: Any, end: Any) -> float:
    return float(end.time_since(start)) * _SECONDS_PER_MS
