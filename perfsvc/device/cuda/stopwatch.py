"""Timing on the stream: each sample between two events, released from behind the blocking kernel."""

import contextlib
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pycuda.driver as drv

from perfsvc.device.cuda.gate import Gate
from perfsvc.device.cuda.helper_kernels import HelperKernels, mapped
from perfsvc.device.helper_kernels import STAMP
from perfsvc.model import Batch, Conditions

_SECONDS_PER_MS = 1e-3
_HZ_PER_GHZ = 1e9
_SHORTEST_CLOCK_NS = 1_000_000
"""Between two stamps: the device's nanoseconds advance in steps of up to a thousand."""
_LOOK_S = 0.003
"""Seconds that a look at the GPU takes."""
_SLOTS = 1024
"""More multiprocessors than any GPU has."""

Sample = Callable[[], None]


class Stopwatch:
    """Times samples on one stream.

    Args:
        helper_kernels: our kernels.
        stream: what the samples are queued on.
        evict: queues the write of so many bytes, after which the cache holds nothing else.
        look: says what the GPU is like. Called on one thread alone, so that each look tells what is new since the
            one before.
    """

    def __init__(
        self, helper_kernels: HelperKernels, stream: Any, evict: Callable[[int], None], look: Callable[[], Conditions]
    ) -> None:
        self._helper_kernels = helper_kernels
        self._stream = stream
        self._evict = evict
        self._gate = Gate(helper_kernels, stream)
        self._pairs = [(drv.Event(), drv.Event()) for _ in range(2)]
        self._begin = drv.Event()
        self._prepared_s = 0.0  # what emptying or filling the cache took before the first sample of a batch
        self._look = look
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="perfsvc-conditions")
        # Cycles and nanoseconds of each multiprocessor, before and after a batch.
        self._stamps, self._stamps_address = mapped(2 * _SLOTS * 2, np.uint64)

    def batch(self, sample: Sample, count: int, *, evict_bytes: int, blocked: bool) -> Batch:
        """Times ``count`` samples one by one.

        The GPU is looked at towards the end; not where that would take longer than the batch, as for the few samples
        of a warm-up. Where the blocking kernel opens by itself the batch ends there.
        """
        conditions: Future[Conditions] | None = None
        done, held, ahead = 0, True, True
        samples_s: list[float] = []
        started = time.perf_counter()
        self._stamps[:] = 0
        self._stamp(0)
        while done < count and held:
            if conditions is None and _is_time_to_look(done, count, time.perf_counter() - started):
                conditions = self._thread.submit(self._look)
            with self._gated() if blocked else contextlib.nullcontext():
                start = self._queue(sample, evict_bytes, number=done)
                ahead &= blocked or not start.query()
            if done:  # while the device is at the next one
                samples_s.append(self._sample_s(done - 1))
            self._stream.synchronize()
            held = not blocked or self._gate.held
            done += 1
        samples_s.append(self._sample_s(done - 1))
        self._stamp(1)
        self._stream.synchronize()
        worth_a_look = time.perf_counter() - started >= _LOOK_S
        found = conditions.result() if conditions else self.look() if worth_a_look else Conditions()
        busy_s = done * self._prepared_s + sum(samples_s)
        return Batch(tuple(samples_s), blocked, held and ahead, busy_s, conditions=_with_clock(found, self._clock_hz()))

    def _sample_s(self, number: int) -> float:
        """The seconds of a sample that is over; of the first one also those of what came before it."""
        start, end = self._pairs[number % 2]
        if number == 0:
            self._prepared_s = _seconds(self._begin, start)
        return _seconds(start, end)

    def _queue(self, sample: Sample, evict_bytes: int, *, number: int) -> Any:
        """Queues a sample between two events, and before it what empties or fills the cache; returns the first event.

        All of it goes behind the blocking kernel, so that the same time passes between the two: a transposition that came 1 ms
        after the cache was emptied was faster by up to 0.6 % (H100; docs/measured/timing.md). Nothing is queued behind
        it until it is over: while a device goes on fetching what comes next, what it runs is slower by 0.6 to 1 µs.
        """
        start, end = self._pairs[number % 2]
        if number == 0:
            self._begin.record(self._stream)
        if evict_bytes:
            self._evict(evict_bytes)
        else:
            sample()  # brings its data into the cache
        start.record(self._stream)
        sample()
        end.record(self._stream)
        return start

    def look(self) -> Conditions:
        """What the GPU is like, and what is new since the last look."""
        return self._thread.submit(self._look).result()

    def look_aside(self) -> None:
        """Looks at the GPU meanwhile, for the sake of what is new the next time."""
        self._thread.submit(self._look)

    def close(self) -> None:
        """Waits for the last look at the GPU."""
        self._thread.shutdown()

    def host_batch(self, sample: Sample, count: int, *, evict_bytes: int) -> Batch:
        """Times ``count`` samples end to end by the host's clock, the device idle before each."""
        samples_s = []
        self._stamps[:] = 0
        started = time.perf_counter()
        self._stamp(0)
        for _ in range(count):
            if evict_bytes:
                self._evict(evict_bytes)
            drv.Context.synchronize()
            start = time.perf_counter()
            sample()
            drv.Context.synchronize()
            samples_s.append(time.perf_counter() - start)
        self._stamp(1)
        self._stream.synchronize()
        busy_s = time.perf_counter() - started
        return Batch(tuple(samples_s), busy_s=busy_s, conditions=_with_clock(self.look(), self._clock_hz()))

    def back_to_back(self, sample: Sample, count: int) -> float | None:
        """Seconds a sample where nothing stands between them; None where the blocking kernel opened by itself."""
        with self._gated():
            self._in_a_row(sample, count)
        self._stream.synchronize()
        return _seconds(*self._pairs[0]) / count if self._gate.held else None

    def unheld(self, sample: Sample, count: int) -> float:
        """The same as fast as the host can queue them."""
        self._in_a_row(sample, count)
        self._stream.synchronize()
        return _seconds(*self._pairs[0]) / count

    def _in_a_row(self, sample: Sample, count: int) -> None:
        start, end = self._pairs[0]
        sample()
        start.record(self._stream)
        for _ in range(count):
            sample()
        end.record(self._stream)

    def held_back(self, sample: Sample, seconds: float, look: Callable[[], bool]) -> bool:
        """Queues a sample behind the closed gate and says what ``look`` sees while it is still closed.

        False where the blocking kernel opened by itself: then the sample is on the stream, for it waited for it.
        """
        with self._gated():
            sample()
            time.sleep(seconds)
            seen = look()
        self._stream.synchronize()
        return seen and self._gate.held

    @contextlib.contextmanager
    def _gated(self) -> Iterator[None]:
        self._gate.close()
        try:
            yield
        finally:
            self._gate.open()

    def _stamp(self, which: int) -> None:
        address = np.uint64(int(self._stamps_address) + which * self._stamps.nbytes // 2)
        blocks = self._helper_kernels.multiprocessors
        self._helper_kernels.launch(self._stream, STAMP, address, np.uint32(_SLOTS), blocks=blocks)

    def _clock_hz(self) -> float | None:
        """The median clock of the multiprocessors that wrote both stamps; None where too little time passed."""
        before, after = self._stamps.reshape(2, _SLOTS, 2).astype(np.int64)
        passed = (after - before)[(before[:, 1] > 0) & (after[:, 1] > 0)]
        passed = passed[passed[:, 1] >= _SHORTEST_CLOCK_NS]
        return float(np.median(passed[:, 0] / passed[:, 1])) * _HZ_PER_GHZ if len(passed) else None


def _is_time_to_look(done: int, count: int, elapsed_s: float) -> bool:
    """Whether a batch is about as far from its end as a look takes, going by what it took so far."""
    if not done:
        return False
    apiece_s = elapsed_s / done
    return (count - done) * apiece_s <= _LOOK_S <= count * apiece_s


def _with_clock(conditions: Conditions, clock_hz: float | None) -> Conditions:
    return conditions if clock_hz is None else replace(conditions, sm_clock_hz=clock_hz)


def _seconds(start: Any, end: Any) -> float:
    return float(end.time_since(start)) * _SECONDS_PER_MS
