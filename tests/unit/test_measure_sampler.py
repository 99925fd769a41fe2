import gc
import itertools
import math

import pytest

from perfsvc.errors import LaunchError
from perfsvc.measure import sampler
from perfsvc.measure.sampler import Sampling


class Clocked:
    """A device whose launches take scripted host time; it counts them."""

    def __init__(self, monkeypatch, seconds):
        self.now, self.seconds, self.launches, self.batches = 0.0, seconds, 0, []
        monkeypatch.setattr(sampler.time, "monotonic", lambda: self.now)

    def time(self, sample, count, *, clock, cold):
        self.batches.append(count)
        for _ in range(count):
            sample()
            self.launches += 1
            self.now += self.seconds
        return [self.seconds] * count


def take(device, sampling):
    return sampler.take(device, lambda: None, sampling, clock="device", cold=True)


def test_sampling_stops_at_the_sample_cap(monkeypatch):
    device = Clocked(monkeypatch, 1e-6)
    samples = take(device, Sampling(warmup=5, samples=23, seconds=1))
    assert (len(samples.seconds), samples.stopped) == (23, "sample cap of 23")
    assert device.launches == 28


def test_sampling_stops_at_the_time_cap(monkeypatch):
    samples = take(Clocked(monkeypatch, 0.01), Sampling(warmup=5, samples=10_000, seconds=1))
    assert samples.stopped == "time cap of 1 s"
    assert 90 <= len(samples.seconds) <= 110


def test_a_case_slower_than_the_cap_is_sampled_once(monkeypatch):
    device = Clocked(monkeypatch, 30.0)
    samples = take(device, Sampling(warmup=5, samples=100, seconds=1))
    assert samples.seconds == (30.0,)
    assert device.launches == 2


@pytest.mark.parametrize(("cap", "batches"), [(10, [10]), (25, [10, 10, 5])])
def test_samples_are_taken_in_batches(monkeypatch, cap, batches):
    device = Clocked(monkeypatch, 1e-6)
    take(device, Sampling(warmup=2, samples=cap, seconds=1))
    assert device.batches == [*itertools.repeat(1, 2), *batches]


@pytest.mark.parametrize("seconds", [0.0, -1e-6, math.inf, math.nan])
def test_a_time_that_no_launch_can_take_fails_the_case(monkeypatch, seconds):
    device = Clocked(monkeypatch, 1e-6)
    device.time = lambda sample, count, **_: [1e-6] * (count - 1) + [seconds]
    with pytest.raises(LaunchError, match="the clock gave"):
        take(device, Sampling(samples=20))


def test_no_garbage_is_collected_amid_the_samples(monkeypatch):
    device, states = Clocked(monkeypatch, 1e-6), []
    sampler.take(device, lambda: states.append(gc.isenabled()), Sampling(samples=3), clock="device", cold=True)
    assert not any(states)
    assert gc.isenabled()
