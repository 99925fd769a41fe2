from dataclasses import replace
from math import prod
from pathlib import Path

import numpy as np
import pytest

from perfsvc.build import Cache, compile_all, toolchain_for
from perfsvc.model import Array, Case, DeviceInfo, Launch, Role, Work
from perfsvc.service.peaks import memory

GIB = 1 << 30
H200 = DeviceInfo("cuda", "cuda:GPU-1", "GPU-1", "NVIDIA H200", "sm_90", memory_bytes=141 * GIB, l2_bytes=60 << 20)
FAKE = DeviceInfo("fake", "fake:x", "FAKE-1", "Fake GPU", "fake")
CPU = DeviceInfo("cpu", "cpu", "CPU-1", "AMD EPYC", "cpu-x86_64", memory_bytes=64 * GIB)


def nbytes_of(array: Array) -> int:
    return prod(array.shape) * np.dtype(array.dtype).itemsize


def source_bytes(device: DeviceInfo) -> int:
    _, read = memory.specs(device)
    (source,) = [buffer.array for buffer in read.buffers if buffer.array.name == "from"]
    return nbytes_of(source)


# --- the cases -------------------------------------------------------------------------------------------------------


def test_a_gpu_copies_and_reads_far_more_than_its_cache_holds() -> None:
    copy, read = memory.specs(H200)
    assert [spec.case.id for spec in (copy, read)] == ["peak/copy", "peak/read"]
    nbytes = source_bytes(H200)
    assert nbytes == 512 << 20
    assert nbytes >= 4 * H200.l2_bytes
    assert (copy.work, read.work) == (Work(nbytes, nbytes), Work(nbytes))
    assert {buffer.role for spec in (copy, read) for buffer in spec.buffers} == {Role.SCRATCH}
    assert sorted(map(nbytes_of, (buffer.array for buffer in copy.buffers))) == [nbytes, nbytes]


@pytest.mark.parametrize(
    ("device", "nbytes"),
    [
        (replace(H200, l2_bytes=256 << 20), GIB),  # four times the cache
        (replace(H200, memory_bytes=2 * GIB), GIB // 4),  # an eighth of the memory
        (FAKE, 1 << 20),
    ],
)
def test_buffer_sizes_depend_on_the_gpu(device: DeviceInfo, nbytes: int) -> None:
    assert source_bytes(device) == nbytes


@pytest.mark.parametrize("device", [H200, replace(H200, memory_bytes=3 * GIB + 12345), FAKE])
def test_the_blocks_cover_the_buffer_in_whole_tiles(device: DeviceInfo) -> None:
    for spec in memory.specs(device):
        (launch,) = spec.steps
        assert isinstance(launch, Launch)
        assert launch.grid[0] * launch.block[0] * memory.ACCESS_BYTES * memory.UNDER_WAY == source_bytes(device)


def test_python_and_cuda_agree_on_the_accesses_of_a_thread() -> None:
    text = memory.SOURCE.read_text()
    assert f"UNDER_WAY = {memory.UNDER_WAY};" in text
    for entry in (memory.COPY, memory.READ):
        assert f'extern "C" __global__ void {entry}(' in text


def test_both_cases_are_one_unit_that_compiles(tmp_path: Path) -> None:
    (unit,) = {unit for spec in memory.specs(FAKE) for unit in spec.units}
    (built,) = compile_all([unit], toolchain_for("fake"), Cache(tmp_path)).values()
    assert built.digest


def test_the_cpu_device_has_no_peak_and_no_benchmark_is_mistaken_for_one() -> None:
    assert memory.specs(CPU) == ()
    assert Case("peak", "copy") not in [spec.case for spec in memory.specs(FAKE)]
