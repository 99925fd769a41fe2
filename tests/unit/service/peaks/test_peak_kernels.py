"""The cases that measure the peaks of arithmetic and of the L2 cache."""

import re
from math import prod

import numpy as np
import pytest

from perfsvc.build import Cache, compile_all, toolchain_for
from perfsvc.build.nvcc import find_nvcc
from perfsvc.model import DeviceInfo, Launch
from perfsvc.service.peaks import kernels

H100 = DeviceInfo("cuda", "cuda:GPU-1", "GPU-1", "NVIDIA H100", "sm_90", multiprocessors=132, l2_bytes=50 << 20)
FAKE = DeviceInfo("fake", "fake:x", "FAKE-1", "Fake GPU", "fake")
CPU = DeviceInfo("cpu", "cpu", "CPU-1", "AMD EPYC", "cpu-x86_64")


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("sm_75", ["fp32", "fp64"]),
        ("sm_80", ["fp32", "fp64", "fp64_tensor", "tf32", "bf16", "fp16"]),
        ("sm_89", ["fp32", "fp64", "fp64_tensor", "tf32", "bf16", "fp16", "fp8"]),
        ("sm_90", ["fp32", "fp64", "fp64_tensor", "tf32", "bf16", "fp16", "fp8"]),
    ],
)
def test_an_architecture_has_the_peaks_of_its_precisions(target: str, expected: list[str]) -> None:
    assert list(kernels.arithmetic(target)) == expected


def test_hopper_multiplies_by_its_own_instructions() -> None:
    sources = {name: kernel.source for name, kernel in kernels.arithmetic("sm_90").items()}
    assert {name for name, source in sources.items() if source == "wgmma.cu"} == {"tf32", "bf16", "fp16", "fp8"}
    assert sources["fp64_tensor"] == "mma.cu"


def test_the_cpu_device_has_no_peaks() -> None:
    assert kernels.specs(CPU) == ()


def test_work_is_that_of_all_multiprocessors() -> None:
    flops = {spec.case.variant: spec.work.flops for spec in kernels.specs(H100)}
    assert flops["fp32"] == 132 * 960 * 1024 * 2 * 1024
    assert flops["bf16"] == 132 * 1920 * 2 * 16 * 2 * 64 * 256 * 16
    assert flops["fp8"] == 2 * flops["bf16"] == 4 * flops["tf32"]


def test_the_l2_cache_is_read_from_a_quarter_of_it() -> None:
    *_, spec = kernels.specs(H100)
    (launch,) = spec.steps
    (source,) = (buffer.array for buffer in spec.buffers if buffer.array.name == "from")
    assert isinstance(launch, Launch)
    nbytes = prod(source.shape) * np.dtype(source.dtype).itemsize
    assert 0.2 * H100.l2_bytes < nbytes <= H100.l2_bytes / kernels.L2_SHARE
    assert spec.work.bytes == launch.grid[0] * kernels.L2_ROUNDS * kernels.L2_TILES_PER_ROUND * kernels.L2_TILE_BYTES


@pytest.mark.parametrize(("source", "name"), [("scalar.cu", "CHAINS"), ("mma.cu", "STEPS"), ("wgmma.cu", "GROUPS")])
def test_python_and_cuda_agree_on_the_work_of_a_round(source: str, name: str) -> None:
    text = (kernels.Path(kernels.__file__).with_name(source)).read_text()
    constants = {key: int(value) for key, value in re.findall(r"(?:constexpr int|#define) (\w+)(?: =)? (\d+)", text)}
    assert name in constants
    rounds = {
        "scalar.cu": lambda: constants["CHAINS"] * constants["STEPS"] == 1024,
        "mma.cu": lambda: constants["LEFT"] * constants["RIGHT"] * constants["STEPS"] == 64,
        "wgmma.cu": lambda: (constants["GROUPS"], constants["STEPS"]) == (2, 16),
    }
    assert rounds[source]()


@pytest.mark.slow
@pytest.mark.skipif(find_nvcc() is None, reason="needs nvcc")
@pytest.mark.parametrize("target", ["sm_75", "sm_80", "sm_89", "sm_90", "sm_100", "sm_120"])
def test_all_kernels_compile(target: str, tmp_path) -> None:
    device = DeviceInfo("cuda", "x", "x", "x", target, l2_bytes=1 << 20)
    units = {unit for spec in kernels.specs(device) for unit in spec.units}
    assert units
    for built in compile_all(units, toolchain_for(target), Cache(tmp_path)).values():
        assert not isinstance(built, Exception), built
