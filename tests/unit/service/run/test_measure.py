"""How the options of a run decide its sampling."""

from pathlib import Path

from perfsvc import build
from perfsvc.measure.protocol.messages import Sampling
from perfsvc.model import DeviceInfo, Environment
from perfsvc.service.prepare.sampling import CPU_SAMPLING, GPU_SAMPLING
from perfsvc.service.prepare.targets import Target
from perfsvc.service.run.measure import environment, sampling
from perfsvc.service.run.request import RunRequest

GPU = DeviceInfo("cuda", "cuda:GPU-1", "GPU-1", "NVIDIA H200", "sm_90")
FAKE = DeviceInfo("fake", "fake:x", "FAKE-1", "Fake GPU", "fake")
CPU = DeviceInfo("cpu", "cpu", "CPU-1", "AMD EPYC", "cpu-x86_64")


def asked(**options: object) -> RunRequest:
    return RunRequest("perfsvc.db", Path("kernels"), **options)  # type: ignore[arg-type]


def test_default_sampling_depends_on_the_kind_of_device() -> None:
    assert sampling(asked(), GPU) == GPU_SAMPLING
    assert (GPU_SAMPLING.precision, GPU_SAMPLING.samples, GPU_SAMPLING.seconds) == (0.002, 1000, 2.0)
    assert sampling(asked(), CPU) == CPU_SAMPLING
    assert (CPU_SAMPLING.samples, CPU_SAMPLING.seconds) == (20, 0.15)
    assert CPU_SAMPLING.least >= CPU_SAMPLING.samples
    assert sampling(asked(), FAKE) == Sampling()


def test_requested_options_apply_to_every_device_and_places_are_part_of_the_environment() -> None:
    for device in (GPU, CPU):
        found = sampling(asked(precision=0.01, samples=7, seconds=0.5, energy=True), device)
        assert (found.precision, found.samples, found.seconds, found.energy) == (0.01, 7, 0.5, True)
    target = Target(FAKE, (), build.toolchain_for(FAKE.target))
    assert environment(asked(), target) == Environment("", target.toolchain.version, 0.0, 1)
    assert environment(asked(places=3), target) == Environment("", target.toolchain.version, 0.0, 3)


def test_a_short_time_limit_also_bounds_the_wait_for_a_disturbed_gpu() -> None:
    assert sampling(asked(limit_s=4.0), GPU).recovery_s == 2.0
    assert sampling(asked(limit_s=600.0), GPU).recovery_s == Sampling().recovery_s
