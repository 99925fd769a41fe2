"""Samples behind the blocking kernel, and the conditions of the GPU meanwhile."""

import ctypes
import statistics
import threading
import time

import numpy as np
import pytest

from perfsvc.model import Launch

pytestmark = pytest.mark.gpu

SPIN = Launch(0, "spin", (1, 1, 1), (1, 1, 1), ())
LEGACY_STREAM = None


@pytest.fixture
def limit_s():
    from perfsvc.device.cuda.timing import LIMIT_S  # needs PyCUDA, which only GPU machines have

    return LIMIT_S


@pytest.fixture
def spin(device, module):
    """Return a function that queues a kernel spinning for so many cycles."""

    def queue(cycles=20_000):
        return lambda: device.launch(module, SPIN, (np.int64(cycles),))

    return queue


def batch(device, sample, count, *, blocked=True, cold=False):
    nbytes = 2 * device.info.l2_bytes if cold else 0
    return device.batch(sample, count, clock="device", evict_bytes=nbytes, blocked=blocked)


def test_delays_of_the_host_between_its_calls_do_not_change_the_times(device, spin):
    sample = spin()
    quiet = statistics.median(batch(device, sample, 50).samples_s)

    def delayed_sample():
        sample()
        time.sleep(1e-3)

    delayed = batch(device, delayed_sample, 50)
    assert delayed.kept_ahead
    assert statistics.median(delayed.samples_s) == pytest.approx(quiet, rel=0.01)
    assert max(delayed.samples_s) < quiet + 5e-4


def test_without_the_blocking_kernel_delays_of_the_host_change_the_times(device, spin):
    sample = spin()

    def delayed_sample():
        time.sleep(1e-3)
        sample()

    assert min(batch(device, delayed_sample, 10, blocked=False).samples_s) > 5e-4


@pytest.mark.parametrize("cold", [False, True])
def test_a_sample_that_waits_for_the_device_ends_the_blocking_kernel(device, spin, limit_s, cold):
    sample = spin()

    def waiting():
        sample()
        device.synchronize()

    started = time.monotonic()
    blocked = batch(device, waiting, 2, cold=cold)
    assert (blocked.blocked, blocked.kept_ahead) == (True, False)
    assert limit_s <= time.monotonic() - started < 4 * limit_s
    assert batch(device, sample, 3, cold=cold).kept_ahead


def test_a_blocking_kernel_that_is_never_released_does_not_hang_the_gpu(device, limit_s):
    blocking_kernel = device._timer.blocking_kernel
    blocking_kernel.launch()
    started = time.monotonic()
    device.synchronize()
    assert time.monotonic() - started < 3 * limit_s
    assert not blocking_kernel.held


def test_a_large_batch_keeps_ahead(device, spin):
    count = (device.queue_depth - 8) // 4
    full = batch(device, spin(1000), count, cold=True)
    assert full.kept_ahead
    assert len(full.samples_s) == count


def test_the_clock_of_a_batch_is_counted_on_the_device(device, spin):
    conditions = batch(device, spin(100_000), 100).conditions
    assert 0.1 * device.info.clock_hz < conditions.sm_clock_hz < 1.05 * device.info.clock_hz
    # A kernel that spins for a number of cycles takes as long as the clock says.
    (seconds,) = batch(device, spin(20_000_000), 1).samples_s
    assert seconds == pytest.approx(20_000_000 / conditions.sm_clock_hz, rel=0.05)


def test_the_conditions_of_a_gpu_are_read(device, spin):
    conditions = batch(device, spin(100_000), 100).conditions
    assert 10 < conditions.temperature_c < 110
    assert 20 < conditions.power_w < 2000
    assert conditions.memory_clock_hz > 1e8
    assert (conditions.others, conditions.xids, conditions.ecc_errors) == ((), (), 0)


def test_busy_time_counts_eviction_and_not_the_blocking_kernel(device, spin):
    sample = spin(200_000)

    def slow_to_queue():
        sample()
        time.sleep(2e-3)

    timed = batch(device, slow_to_queue, 20, cold=True)
    samples = sum(timed.samples_s)
    assert samples < timed.busy_s < samples + 20 * 1e-3 < samples + 20 * 2e-3


def test_back_to_back_is_no_slower_than_one_by_one(device, spin):
    sample = spin()
    per_sample_s = device.back_to_back(sample, 100)
    assert 0.5 * per_sample_s < statistics.median(batch(device, sample, 100).samples_s)


def test_work_on_another_stream_is_detected(device):
    address = device.allocate(1 << 20)
    device.fill(address, 1 << 20, 0)
    cuda = ctypes.CDLL("libcuda.so.1")
    target = ctypes.c_uint64(address)

    def on_another_stream():
        cuda.cuMemsetD8Async(target, ctypes.c_ubyte(7), ctypes.c_size_t(1 << 20), LEGACY_STREAM)

    assert device.uses_other_streams(on_another_stream, 5e-3, [(address, 1 << 20)])
    device.fill(address, 1 << 20, 0)
    assert not device.uses_other_streams(lambda: device.fill(address, 1 << 20, 9), 5e-3, [(address, 1 << 20)])


def test_lines_that_a_kernel_asks_to_keep_are_evicted_too(device, module):
    n = device.info.l2_bytes // 4 // 8
    a, out = device.allocate(4 * n), device.allocate(4)
    device.fill(a, 4 * n, 0)
    launch = Launch(0, "keep", (2 * device.info.multiprocessors, 1, 1), (256, 1, 1), ())

    def sample():
        device.launch(module, launch, (np.uint64(a), np.uint64(out), np.int32(n)))

    warm = statistics.median(batch(device, sample, 50).samples_s)
    first = batch(device, sample, 1, cold=True).samples_s[0]
    cold = statistics.median(batch(device, sample, 50, cold=True).samples_s)
    assert cold > 1.2 * warm
    assert cold == pytest.approx(first, rel=0.2)


def test_a_busy_host_does_not_move_the_times(device, spin):
    sample, stop = spin(), threading.Event()
    quiet = statistics.median(batch(device, sample, 50).samples_s)

    def burn():
        while not stop.is_set():
            pass

    threads = [threading.Thread(target=burn) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        busy = statistics.median(batch(device, sample, 50).samples_s)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert busy == pytest.approx(quiet, rel=0.01)


def test_energy_is_the_power_of_the_gpu_over_time(device, spin):
    joules = device.energy(spin(2_000_000), 1.0)
    if joules is None:
        pytest.skip("this GPU does not count energy")
    watts = joules / device.back_to_back(spin(2_000_000), 10)
    assert 20 < watts < 2000
