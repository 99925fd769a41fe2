"""The cases that measure peaks, the measured peaks of a run, and doubts about the declared work of a case."""

import re
from dataclasses import replace
from datetime import UTC, datetime
from math import prod

import numpy as np
import pytest

from perfsvc.build import Cache, compile_all, toolchain_for
from perfsvc.build.nvcc import find_nvcc
from perfsvc.model import Array, Buffer, CacheState, Case, DeviceInfo, Measurement, Peak, Provenance, Role, Status, Work
from perfsvc.report.tables.run import doubt_text
from perfsvc.service.peaks import kernels, memory, sampling
from perfsvc.service.peaks import specs as peaks_of
from perfsvc.service.peaks.collector import PeakCollector, doubt, note
from perfsvc.store import Store

GIB = 1 << 30
H100 = DeviceInfo("cuda", "cuda:GPU-1", "GPU-1", "NVIDIA H100", "sm_90", multiprocessors=132, l2_bytes=50 << 20)
H200 = DeviceInfo("cuda", "cuda:GPU-1", "GPU-1", "NVIDIA H200", "sm_90", memory_bytes=141 * GIB, l2_bytes=60 << 20)
FAKE = DeviceInfo("fake", "fake:x", "FAKE-1", "Fake GPU", "fake")
CPU = DeviceInfo("cpu", "cpu", "CPU-1", "AMD EPYC", "cpu-x86_64", memory_bytes=64 * GIB)


def nbytes_of(array: Array) -> int:
    return prod(array.shape) * np.dtype(array.dtype).itemsize


def source_of(spec):
    (source,) = (buffer.array for buffer in spec.buffers if buffer.array.name == "from")
    return source


def source_bytes(device: DeviceInfo) -> int:
    _, read = memory.specs(device)
    return nbytes_of(source_of(read))


def test_an_architecture_has_the_peaks_of_its_precisions_and_the_cpu_device_none():
    scalar = ["fp32", "fp64"]
    tensor = [*scalar, "fp64_tensor", "tf32", "bf16", "fp16"]
    expected = {"sm_75": scalar, "sm_80": tensor, "sm_89": [*tensor, "fp8"], "sm_90": [*tensor, "fp8"]}
    assert {target: list(kernels.arithmetic(target)) for target in expected} == expected
    assert (kernels.specs(CPU), memory.specs(CPU)) == ((), ())
    assert Case("peak", "copy") not in [spec.case for spec in memory.specs(FAKE)]  # which a benchmark could be


def test_hopper_multiplies_by_its_own_instructions():
    sources = {name: kernel.source for name, kernel in kernels.arithmetic("sm_90").items()}
    assert {name for name, source in sources.items() if source == "wgmma.cu"} == {"tf32", "bf16", "fp16", "fp8"}
    assert sources["fp64_tensor"] == "mma.cu"


def test_work_is_that_of_all_multiprocessors():
    flops = {spec.case.variant: spec.work.flops for spec in kernels.specs(H100)}
    assert flops["fp32"] == 132 * 960 * 1024 * 2 * 1024
    assert flops["bf16"] == 132 * 1920 * 2 * 16 * 2 * 64 * 256 * 16
    assert flops["fp8"] == 2 * flops["bf16"] == 4 * flops["tf32"]


def test_the_l2_cache_is_read_from_a_quarter_of_it():
    *_, spec = kernels.specs(H100)
    (launch,) = spec.steps
    nbytes = nbytes_of(source_of(spec))
    assert 0.2 * H100.l2_bytes < nbytes <= H100.l2_bytes / kernels.L2_SHARE
    assert spec.work.bytes == launch.grid[0] * kernels.L2_ROUNDS * kernels.L2_TILES_PER_ROUND * kernels.L2_TILE_BYTES


def constants_of(source):
    text = kernels.Path(kernels.__file__).with_name(source).read_text()
    found = re.findall(r"(?:constexpr int|#define) (\w+)(?: =)? (\d+)", text)
    return {name: int(value) for name, value in found}


def test_python_and_cuda_agree_on_the_work_of_a_round():
    scalar, mma, wgmma = map(constants_of, ("scalar.cu", "mma.cu", "wgmma.cu"))
    assert scalar["CHAINS"] * scalar["STEPS"] == 1024
    assert mma["LEFT"] * mma["RIGHT"] * mma["STEPS"] == 64
    assert (wgmma["GROUPS"], wgmma["STEPS"]) == (2, 16)
    text = memory.SOURCE.read_text()
    assert f"UNDER_WAY = {memory.UNDER_WAY};" in text
    for entry in (memory.COPY, memory.READ):
        assert f'extern "C" __global__ void {entry}(' in text


def test_a_gpu_copies_and_reads_far_more_than_its_cache_holds():
    copy, read = memory.specs(H200)
    assert [spec.case.id for spec in (copy, read)] == ["peak/copy", "peak/read"]
    nbytes = source_bytes(H200)
    assert nbytes == 512 << 20
    assert nbytes >= 4 * H200.l2_bytes
    assert (copy.work, read.work) == (Work(nbytes, nbytes), Work(nbytes))
    assert {buffer.role for spec in (copy, read) for buffer in spec.buffers} == {Role.SCRATCH}
    assert sorted(map(nbytes_of, (buffer.array for buffer in copy.buffers))) == [nbytes, nbytes]


def test_buffer_sizes_depend_on_the_gpu_and_blocks_cover_the_buffer_in_whole_tiles():
    assert source_bytes(replace(H200, l2_bytes=256 << 20)) == GIB  # four times the cache
    assert source_bytes(replace(H200, memory_bytes=2 * GIB)) == GIB // 4  # an eighth of the memory
    assert source_bytes(FAKE) == 1 << 20
    for device in (H200, replace(H200, memory_bytes=3 * GIB + 12345), FAKE):
        for spec in memory.specs(device):
            (launch,) = spec.steps
            covered = launch.grid[0] * launch.block[0] * memory.ACCESS_BYTES * memory.UNDER_WAY
            assert covered == source_bytes(device)


def test_both_cases_are_one_unit_that_compiles(tmp_path):
    (unit,) = {unit for spec in memory.specs(FAKE) for unit in spec.units}
    (built,) = compile_all([unit], toolchain_for("fake"), Cache(tmp_path)).values()
    assert built.digest


@pytest.mark.slow
@pytest.mark.skipif(find_nvcc() is None, reason="needs nvcc")
@pytest.mark.parametrize("target", ["sm_75", "sm_80", "sm_89", "sm_90", "sm_100", "sm_120"])
def test_all_kernels_compile(target, tmp_path):
    device = DeviceInfo("cuda", "x", "x", "x", target, l2_bytes=1 << 20)
    units = {unit for spec in kernels.specs(device) for unit in spec.units}
    assert units
    for built in compile_all(units, toolchain_for(target), Cache(tmp_path)).values():
        assert not isinstance(built, Exception), built


# --- the measured peaks of a run -------------------------------------------------------------------------------------


GPU = replace(FAKE, multiprocessors=2, l2_bytes=1 << 20, driver="580", power_limit_w=700.0)
MIB = 1 << 20
OTHERS = ["fp32", "fp64", "fp64_tensor", "tf32", "bf16", "fp16", "fp8", "l2"]


@pytest.fixture
def store(tmp_path):
    with Store.open(str(tmp_path / "perfsvc.db")) as opened:
        for device in (FAKE, replace(FAKE, uuid="FAKE-2"), CPU):
            opened.devices.put(device)
        yield opened


@pytest.fixture
def messages() -> list[str]:
    return []


@pytest.fixture
def collect(store, messages):
    def collect(*devices: DeviceInfo, **options: object) -> PeakCollector:
        run = store.runs.begin(Provenance(datetime.now(UTC), "perfsvc run", "kernels"))
        return PeakCollector(store, run, devices, messages.append, **options)

    return collect


def measured(variant: str, seconds: float, status: Status = Status.OK, *, version: int = kernels.OURS) -> Measurement:
    times = (seconds,) * 9 if status is Status.OK else ()
    reason = "" if status is Status.OK else "out of memory"
    return Measurement(Case("peak", variant, version=version), "FAKE-1", 0, status, reason=reason, samples_s=times)


def names(specs) -> list[str]:
    return [spec.case.variant for spec in specs]


def test_the_peak_of_the_memory_is_the_rate_of_its_two_cases(collect, store, messages):
    peaks = collect(FAKE)
    assert names(peaks.unknown("FAKE-1")) == ["copy", "read"]
    assert peaks.take(measured("read", 1e-3))
    assert peaks.rates("FAKE-1") == {}
    assert peaks.take(measured("copy", 1e-3))
    assert peaks.rates("FAKE-1") == {"memory": 2 * MIB / 1e-3}
    assert store.devices.peaks(1) == {"FAKE-1": Peak(2 * MIB / 1e-3, MIB / 1e-3)}
    assert (names(peaks.unknown("FAKE-1")), messages) == ([], [])


def test_a_resumed_run_keeps_the_peak_of_its_memory(collect):
    peaks = collect(FAKE, memory_peaks={"FAKE-1": Peak(2.0, 3.0)})
    assert (peaks.unknown("FAKE-1"), peaks.rates("FAKE-1")) == ([], {"memory": 3.0})


def test_other_peaks_are_measured_once_for_each_driver_power_limit_and_version(collect, monkeypatch):
    peaks = collect(GPU)
    specs = {spec.case.variant: spec for spec in peaks.unknown("FAKE-1")}
    assert list(specs) == ["copy", "read", *OTHERS]
    for variant in ("fp32", "l2"):
        assert peaks.take(measured(variant, 1e-3))
    known = {"fp32": specs["fp32"].work.flops / 1e-3, "l2": specs["l2"].work.bytes / 1e-3}
    assert peaks.rates("FAKE-1") == pytest.approx(known)
    later = collect(GPU)
    assert later.rates("FAKE-1") == pytest.approx(known)
    assert names(later.unknown("FAKE-1")) == ["copy", "read", *(name for name in OTHERS if name not in known)]
    for changed in (replace(GPU, driver="590"), replace(GPU, power_limit_w=350.0)):
        assert names(collect(changed).unknown("FAKE-1")) == ["copy", "read", *OTHERS]
    monkeypatch.setattr(kernels, "VERSION", kernels.VERSION + 1)
    assert names(collect(GPU).unknown("FAKE-1")) == ["copy", "read", *OTHERS]


def test_a_peak_that_is_measured_again_replaces_the_old_one(collect, store):
    peaks = collect(GPU)
    for seconds in (1e-3, 2e-3):
        peaks.take(measured("fp32", seconds))
    (flops,) = (spec.work.flops for spec in kernels.specs(GPU) if spec.case.variant == "fp32")
    assert store.devices.gpu_peaks(GPU, version=kernels.VERSION) == {"fp32": pytest.approx(flops / 2e-3)}


def test_peaks_of_other_kernels_are_deleted_and_doubted_ones_are_measured_again(collect, store):
    for name, version in (("fp32", kernels.VERSION - 1), ("bf16", kernels.VERSION), ("fp64", kernels.VERSION)):
        store.devices.put_gpu_peak(GPU, name, 1e12, version=version)
    peaks = collect(GPU)
    assert peaks.rates("FAKE-1") == {"bf16": 1e12, "fp64": 1e12}
    assert store.devices.gpu_peaks(GPU, version=kernels.VERSION - 1) == {}
    peaks.doubt("FAKE-1", "fp64")
    assert peaks.rates("FAKE-1") == {"bf16": 1e12, "fp64": 1e12}  # in this run
    assert "fp64" in names(collect(GPU).unknown("FAKE-1"))
    assert "bf16" not in names(collect(GPU).unknown("FAKE-1"))


def test_waiting_for_a_hot_gpu_and_sampling_are_limited():
    for spec in peaks_of(GPU):
        how = sampling(spec, 0.25)
        assert max(how.seconds, how.recovery_s) <= 0.25
        assert sampling(spec, 30.0).recovery_s <= 30.0


def test_cases_of_the_suite_are_not_taken_for_a_peak(collect):
    peaks = collect(FAKE, CPU)
    assert not peaks.take(measured("copy", 1e-3, version=1))
    assert not peaks.take(replace(measured("copy", 1e-3), device="CPU-1"))


def test_a_peak_that_cannot_be_measured_is_unknown_and_reported_once_per_device(collect, messages):
    peaks = collect(GPU, replace(FAKE, uuid="FAKE-2"))
    for variant in ("copy", "fp8"):
        assert peaks.take(measured(variant, 1e-3, Status.FAILED))
    assert peaks.take(measured("read", 1e-3))
    for variant in ("copy", "read"):
        assert peaks.take(replace(measured(variant, 1e-3, Status.FAILED), device="FAKE-2"))
    assert (peaks.rates("FAKE-1"), peaks.rates("FAKE-2")) == ({}, {})
    assert messages == [
        "the memory of FAKE-1 could not be measured, so no share of it is shown: out of memory",
        "the FP8 peak of FAKE-1 could not be measured, so no share of it is shown: out of memory",
        "the memory of FAKE-2 could not be measured, so no share of it is shown: out of memory",
    ]


# --- doubts about declared work --------------------------------------------------------------------------------------


SMALL_GPU = replace(FAKE, l2_bytes=1000)
RATES = {"memory": 3e6, "fp32": 1e6, "fp64": 2e5, "fp64_tensor": 4e5, "tf32": 8e6}


def declaring(work: Work, *, footprint: int = 4000) -> object:
    copy = memory.specs(FAKE)[0]
    buffer = Buffer(Array("x", "uint8", (footprint,)), Role.SCRATCH)
    return replace(copy, case=Case("scale", "x"), work=work, buffers=(buffer,))


def test_bytes_more_than_five_per_cent_above_the_peak_are_doubted():
    assert doubt(declaring(Work(3150)), SMALL_GPU, 1e-3, RATES) is None
    assert doubt(declaring(Work(3151)), SMALL_GPU, 1e-3, RATES)


def test_a_footprint_that_may_fit_the_cache_is_not_doubted():
    work = Work(10**6)
    assert doubt(declaring(work, footprint=3999), SMALL_GPU, 1e-3, RATES) is None
    assert doubt(declaring(work, footprint=4000), FAKE, 1e-3, RATES) is None
    assert doubt(declaring(work, footprint=4000), SMALL_GPU, 1e-3, {}) is None  # the measured peak is unknown


def test_operations_beyond_what_a_short_kernel_can_do_are_doubted():
    doubted = {
        (1250, "fp32"): False,
        (1251, "fp32"): True,
        (1251, "tf32"): False,
        (500, "fp64"): False,  # by the tensor cores
        (501, "fp64"): True,
        (10**9, "bf16"): False,  # not measured
        (10**9, ""): False,
    }
    works = {given: declaring(Work(flops=given[0], precision=given[1])) for given in doubted}
    assert {given: bool(doubt(spec, SMALL_GPU, 1e-3, RATES)) for given, spec in works.items()} == doubted


def test_tensor_cores_that_may_be_faster_than_our_kernels_are_no_reason_for_a_doubt():
    spec = declaring(Work(flops=10**9, precision="tf32"))
    assert doubt(spec, replace(SMALL_GPU, target="sm_90"), 1e-3, RATES)
    assert doubt(spec, replace(SMALL_GPU, target="sm_100"), 1e-3, RATES) is None


def test_a_doubt_shows_the_declared_bytes_the_rate_and_the_cure():
    doubted = doubt(declaring(Work(9000)), SMALL_GPU, 1e-3, RATES)
    assert (doubted.case.id, doubted.cache, doubted.peak, doubted.declared) == (
        *("scale/x", CacheState.COLD, "memory", 9000),
    )
    text = doubt_text(doubted)
    for part in ("scale/x declares 9000 bytes", "9.00 MB/s", "FAKE-1", "3.00 MB/s", "cure: declare in work="):
        assert part in text
    assert note(doubted) == "its work is declared as more bytes than the GPU's memory can move in that time"


def test_a_doubt_about_operations_names_the_precision_and_how_to_declare_another():
    doubted = doubt(declaring(Work(flops=9000, precision="fp32")), SMALL_GPU, 1e-3, RATES)
    text = doubt_text(doubted)
    for part in ("scale/x declares 9000 operations", "9.00 MFLOP/s", "measured FP32 peak of FAKE-1, 1.00 MFLOP/s"):
        assert part in text
    assert "a precision that differs from the inputs: tf32" in text
    assert note(doubted) == "its work is declared as more operations than the GPU can do in that time"
