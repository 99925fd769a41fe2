"""What becomes of a run's options: how cases are sampled, and where the plan puts them."""

from pathlib import Path

import pytest

from perfsvc.measure.protocol.messages import Sampling
from perfsvc.model import DeviceInfo
from perfsvc.service.run.measure import CPU_SAMPLING, GPU_SAMPLING, sampling
from perfsvc.service.run.request import RunRequest

GPU = DeviceInfo("cuda", "cuda:GPU-1", "GPU-1", "NVIDIA H200", "sm_90")
FAKE = DeviceInfo("fake", "fake:x", "FAKE-1", "Fake GPU", "fake")
CPU = DeviceInfo("cpu", "cpu", "CPU-1", "AMD EPYC", "cpu-x86_64")


def asked(**options: object) -> RunRequest:
    return RunRequest("perfsvc.db", Path("kernels"), **options)  # type: ignore[arg-type]


def test_what_is_not_asked_for_suits_the_kind_of_device() -> None:
    assert sampling(asked(), GPU) == GPU_SAMPLING
    assert sampling(asked(), CPU) == CPU_SAMPLING
    assert sampling(asked(), FAKE) == Sampling()


def test_a_gpu_is_sampled_as_the_options_say_they_are_by_default() -> None:
    assert (GPU_SAMPLING.precision, GPU_SAMPLING.samples, GPU_SAMPLING.seconds) == (0.002, 1000, 2.0)


def test_the_cpu_device_gets_a_short_look_that_chases_no_interval() -> None:
    assert (CPU_SAMPLING.samples, CPU_SAMPLING.seconds) == (20, 0.15)
    assert CPU_SAMPLING.least >= CPU_SAMPLING.samples


@pytest.mark.parametrize("device", [GPU, CPU])
def test_what_is_asked_for_counts_on_every_device(device: DeviceInfo) -> None:
    found = sampling(asked(precision=0.01, samples=7, seconds=0.5, energy=True), device)
    assert (found.precision, found.samples, found.seconds, found.energy) == (0.01, 7, 0.5, True)


def test_a_short_time_limit_also_bounds_the_wait_for_a_disturbed_board() -> None:
    assert sampling(asked(limit_s=4.0), GPU).recovery_s == 2.0
    assert sampling(asked(limit_s=600.0), GPU).recovery_s == Sampling().recovery_s
