from dataclasses import replace
from math import prod
from pathlib import Path

import numpy as np
import pytest

from perfsvc.build import Cache, compile_all, toolchain_for
from perfsvc.model import Array, Buffer, CacheState, Case, DeviceInfo, Launch, Measurement, Peak, Role, Status, Work
from perfsvc.report.tables.run import doubt_text
from perfsvc.service.run import peaks
from perfsvc.service.run.peaks import PeakCollector

GIB = 1 << 30
H200 = DeviceInfo("cuda", "cuda:GPU-1", "GPU-1", "NVIDIA H200", "sm_90", memory_bytes=141 * GIB, l2_bytes=60 << 20)
FAKE = DeviceInfo("fake", "fake:x", "FAKE-1", "Fake GPU", "fake")
CPU = DeviceInfo("cpu", "cpu", "CPU-1", "AMD EPYC", "cpu-x86_64", memory_bytes=64 * GIB)


def nbytes_of(array: Array) -> int:
    return prod(array.shape) * np.dtype(array.dtype).itemsize


def source_bytes(device: DeviceInfo) -> int:
    _, read = peaks.specs(device)
    (source,) = [buffer.array for buffer in read.buffers if buffer.array.name == "from"]
    return nbytes_of(source)


# --- the cases -------------------------------------------------------------------------------------------------------


def test_a_gpu_copies_and_reads_far_more_than_its_cache_holds() -> None:
    copy, read = peaks.specs(H200)
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
    for spec in peaks.specs(device):
        (launch,) = spec.steps
        assert isinstance(launch, Launch)
        assert launch.grid[0] * launch.block[0] * peaks.ACCESS_BYTES * peaks.UNDER_WAY == source_bytes(device)


def test_python_and_cuda_agree_on_the_accesses_of_a_thread() -> None:
    text = peaks.SOURCE.read_text()
    assert f"UNDER_WAY = {peaks.UNDER_WAY};" in text
    for entry in (peaks.COPY, peaks.READ):
        assert f'extern "C" __global__ void {entry}(' in text


def test_both_cases_are_one_unit_that_compiles(tmp_path: Path) -> None:
    (unit,) = {unit for spec in peaks.specs(FAKE) for unit in spec.units}
    (built,) = compile_all([unit], toolchain_for("fake"), Cache(tmp_path)).values()
    assert built.digest


def test_the_cpu_device_has_no_peak_and_no_benchmark_is_mistaken_for_one() -> None:
    assert peaks.specs(CPU) == ()
    assert Case("peak", "copy") not in [spec.case for spec in peaks.specs(FAKE)]


# --- the measured peaks of a run --------------------------------------------------------------------------------------


def measured(variant: str, seconds: float, status: Status = Status.OK, *, version: int = peaks.OURS) -> Measurement:
    times = (seconds,) * 9 if status is Status.OK else ()
    reason = "" if status is Status.OK else "out of memory"
    return Measurement(Case("peak", variant, version=version), "FAKE-1", 0, status, reason=reason, samples_s=times)


def test_a_peak_is_the_rate_of_its_two_cases() -> None:
    messages: list[str] = []
    peaks = PeakCollector((FAKE,), messages.append)
    assert peaks.take(measured("read", 1e-3))
    assert peaks.peaks == {}
    assert peaks.take(measured("copy", 1e-3))
    assert peaks.peaks == {"FAKE-1": Peak(2 * (1 << 20) / 1e-3, (1 << 20) / 1e-3)}
    assert messages == []


def test_cases_of_the_suite_are_not_taken_for_a_peak() -> None:
    peaks = PeakCollector((FAKE, CPU), print)
    assert not peaks.take(measured("copy", 1e-3, version=1))
    assert not peaks.take(replace(measured("copy", 1e-3), device="CPU-1"))


def test_a_peak_that_cannot_be_measured_is_reported_and_unknown() -> None:
    messages: list[str] = []
    peaks = PeakCollector((FAKE,), messages.append)
    assert peaks.take(measured("copy", 1e-3, Status.FAILED))
    assert peaks.take(measured("read", 1e-3))
    assert peaks.peaks == {}
    assert messages == ["the memory of FAKE-1 could not be measured, so no share of it is shown: out of memory"]


def test_a_failure_of_both_cases_is_reported_once_per_device() -> None:
    messages: list[str] = []
    peaks = PeakCollector((FAKE, replace(FAKE, uuid="FAKE-2")), messages.append)
    for device in ("FAKE-1", "FAKE-2"):
        for variant in ("copy", "read"):
            assert peaks.take(replace(measured(variant, 1e-3, Status.FAILED), device=device))
    assert [text.split()[3] for text in messages] == ["FAKE-1", "FAKE-2"]


# --- doubts ----------------------------------------------------------------------------------------------------------

GPU = replace(FAKE, l2_bytes=1000)
PEAK = Peak(copy_bytes_per_s=2e6, read_bytes_per_s=3e6)


def declaring(nbytes: int, *, footprint: int = 4000) -> object:
    copy = peaks.specs(FAKE)[0]
    buffer = Buffer(Array("x", "uint8", (footprint,)), Role.SCRATCH)
    return replace(copy, case=Case("scale", "x"), work=Work(nbytes), buffers=(buffer,))


@pytest.mark.parametrize(("nbytes", "doubted"), [(3150, False), (3151, True)])
def test_work_more_than_five_per_cent_above_the_better_peak_is_doubted(nbytes: int, doubted: bool) -> None:
    doubt = peaks.doubt(declaring(nbytes), GPU, 1e-3, PEAK)
    assert bool(doubt) is doubted


@pytest.mark.parametrize(
    ("footprint", "device", "known"),
    [(3999, GPU, PEAK), (4000, FAKE, PEAK), (4000, GPU, None)],
    ids=["fits the cache", "cache unknown", "measured peak unknown"],
)
def test_a_footprint_that_may_fit_the_cache_is_not_doubted(
    footprint: int, device: DeviceInfo, known: Peak | None
) -> None:
    assert peaks.doubt(declaring(10**6, footprint=footprint), device, 1e-3, known) is None


def test_a_doubt_shows_the_declared_bytes_the_rate_and_the_cure() -> None:
    doubt = peaks.doubt(declaring(9000), GPU, 1e-3, PEAK)
    assert doubt is not None
    assert (doubt.case.id, doubt.cache, doubt.declared_bytes) == ("scale/x", CacheState.COLD, 9000)
    text = doubt_text(doubt)
    for part in ("scale/x declares 9000 bytes", "9.00 MB/s", "FAKE-1", "3.00 MB/s", "cure: declare in work="):
        assert part in text
