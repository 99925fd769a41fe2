"""Reading reports of Nsight Compute: real ones of an H100, damaged ones, and other files."""

import struct
import sys
from pathlib import Path

import pytest

from perfsvc.errors import MissingPackageError, ReportError
from perfsvc.installation import install_command
from perfsvc.model import Instruction, Profile
from perfsvc.profile.instructions import tensor_flops
from perfsvc.profile.metrics import METRICS, OPERATIONS, STALLS, operations
from perfsvc.profile.reports import read
from perfsvc.profile.waits import MEANINGS

LENGTH = struct.Struct("<I")


@pytest.fixture
def padded(ncu_report) -> Path:
    return ncu_report("transpose-padded")


@pytest.fixture
def profile(profiled) -> Profile:
    return profiled("transpose-padded")


def forged(path: Path, launches: int) -> Path:
    """Write a report with a block for each launch, which can be counted and not read."""
    header, block = b"\x08\x07", b"\x08\x00\x10\x01\x28\x04"  # version 7; one launch, a payload of four bytes
    blocks = (LENGTH.pack(len(block)) + block + LENGTH.pack(0)) * launches
    path.write_bytes(b"NVR\0" + LENGTH.pack(len(header)) + header + blocks)
    return path


def test_a_profile_has_the_kernel_the_device_the_version_of_ncu_and_exactly_the_metrics_of_the_table(profile):
    assert profile.kernel == "transpose_pad"
    assert (profile.device, profile.chip) == ("NVIDIA H100 80GB HBM3", "sm_90")
    assert profile.ncu_version == "2025.3.1.0"
    assert set(profile.metrics) == {metric.name for metric in METRICS} | set(OPERATIONS) | set(MEANINGS)
    assert len(METRICS) == len({metric.name for metric in METRICS})
    unused = [f"{name}_peak_flops_per_s" for name in ("fp64_tensor", "tf32", "bf16", "fp16", "fp8")]
    assert sorted(name for name, value in profile.metrics.items() if value is None) == sorted(unused)
    cycles = [profile.metrics[f"stall_{reason}_cycles"] for reason in STALLS]
    assert sum(cycles) == pytest.approx(94.07, rel=0.03)  # smsp__average_warp_latency_per_inst_issued.ratio


def test_metrics_are_in_base_units_and_fractions(profile):
    for metric, value in [
        ("duration_s", 43.648e-6),  # the report has nanoseconds
        ("dram_read_bytes", 67_119_360),
        ("global_load_sectors", 4096 * 4096 * 4 / 32),
        ("global_load_used_bytes_per_sector", 32),
        ("blocks", 128 * 128),
        ("threads_per_block", 256),
        ("registers", 22),
        ("shared_static_bytes", 32 * 33 * 4),
        ("theoretical_occupancy", 1),  # the report has per cent
        ("achieved_occupancy", 0.92482),
        ("instructions", 6_815_744),
        ("spill_requests", 0),
        ("dram_peak_bytes_per_s", 3.3494e12),
        ("fp32_peak_flops_per_s", 132 * 128 * 2 * 1.96149e9),
    ]:
        assert profile.metrics[metric] == pytest.approx(value, rel=1e-4), (metric, value)


def test_a_metric_that_was_not_counted_is_none_and_not_zero(profiled, profile):
    small = profiled("transpose-padded-small")
    assert small.metrics["fp32_flops"] is None
    assert profile.metrics["fp32_flops"] == 0
    assert small.metrics["dram_peak_bytes_per_s"] == pytest.approx(profile.metrics["dram_peak_bytes_per_s"], rel=1e-2)


def test_rules_are_plain_text_with_the_largest_estimate_first(profiled):
    rules = profiled("transpose-tiled").rules
    estimates = [rule.speedup for rule in rules if rule.speedup is not None]
    assert estimates == sorted(estimates, reverse=True)
    assert all(0 <= estimate <= 1 for estimate in estimates)
    (conflicts,) = [rule for rule in rules if rule.name == "SharedMemoryConflicts"]
    assert "32.3 - way bank conflict" in conflicts.message
    assert "Check the Source Counters section" in conflicts.message
    assert not [rule for rule in rules if "@" in rule.message or "\n" in rule.message]


def test_a_launch_of_another_kernel_and_a_missing_file_are_refused(padded, profile, tmp_path, elsewhere):
    assert elsewhere(read, padded, kernel="transpose_pad") == profile
    another = r"is a report of the kernel transpose_pad, not of matmul\n  cure: .*--kernel-name mat"
    with pytest.raises(ReportError, match=another):
        elsewhere(read, padded, kernel="matmul")
    with pytest.raises(ReportError, match=r"none\.ncu-rep cannot be read: No such file"):
        elsewhere(read, tmp_path / "none.ncu-rep")


def test_other_and_damaged_files_are_refused_with_a_cure(tmp_path, elsewhere):
    for content, message in [
        (b"", "is empty: Nsight Compute was ended before"),
        (b"NVR", "is no report of Nsight Compute"),
        (b"kernel,time\ndot,1\n", "is no report of Nsight Compute"),
        (b"\x7fELF" + bytes(100), "is no report of Nsight Compute"),
        (b"NVR\0", "is not a whole report"),
        (b"NVR\0" + bytes(2), "is not a whole report"),
        (b"NVR\0\x02\0\0\0\x08\x07", "holds no launch"),
        (b"NVR\0\x02\0\0\0\x08\x07\x04\0\0\0\xff\xff\xff\xff", "is not a whole report"),
        (b"NVR\0\x02\0\0\0\x08\x07\x02\0\0\0\x2b\x00", "is not a whole report"),  # an unknown kind of field
        (b"NVR\0\x02\0\0\0\x08\x07\x03\0\0\0\x12\x01\x00", "is not a whole report"),  # a text instead of a number
    ]:
        path = tmp_path / "kernel.ncu-rep"
        path.write_bytes(content)
        with pytest.raises(ReportError, match=rf"kernel\.ncu-rep {message}") as refused:
            elsewhere(read, path)
        assert refused.value.cure, (content, message)


def test_a_report_that_is_cut_short_is_refused_wherever_it_is_cut(tmp_path, padded, elsewhere):
    for share in [0.001, 0.1, 0.5, 0.9, 0.999999]:
        content = padded.read_bytes()
        path = tmp_path / "cut.ncu-rep"
        path.write_bytes(content[: int(share * len(content))])
        with pytest.raises(ReportError, match="is not a whole report"):
            elsewhere(read, path)


def test_a_report_of_several_launches_or_of_one_without_metrics_is_refused(tmp_path, elsewhere):
    for launches, count in ((2, "2 launches"), (5_000, "5,000 launches")):
        several = rf"holds {count}, but a profile is of one launch\n  cure: .*--launch-count 1"
        with pytest.raises(ReportError, match=several):
            elsewhere(read, forged(tmp_path / "many.ncu-rep", launches))
    with pytest.raises(ReportError, match="holds a launch without a metric"):
        elsewhere(read, forged(tmp_path / "single.ncu-rep", 1))


def test_without_the_package_the_cure_is_to_install_its_extra(monkeypatch, padded):
    monkeypatch.setitem(sys.modules, "ncu_report", None)
    with pytest.raises(MissingPackageError) as raised:
        read(padded)
    assert raised.value.cure == install_command("profile")


RAW = {
    "gpu__time_duration.sum": 2.0,
    "smsp__cycles_elapsed.avg.per_second": 100.0,
    "smsp__sass_thread_inst_executed_op_fadd_pred_on.sum.per_cycle_elapsed": 1.0,
    "smsp__sass_thread_inst_executed_op_fmul_pred_on.sum.per_cycle_elapsed": 2.0,
    "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum.per_cycle_elapsed": 4.0,
    "sm__sass_thread_inst_executed_op_ffma_pred_on.sum.peak_sustained": 8.0,
    "sm__ops_path_tensor_op_hmma_src_fp16_dst_fp32_sparsity_off.sum": 500.0,
    "sm__ops_path_tensor_op_hmma_src_fp16_dst_fp32_sparsity_off.sum.peak_sustained_elapsed.per_second": 1000.0,
    "sm__ops_path_tensor_op_imma_src_int8_sparsity_off.sum": 7.0,  # not floating point
    "device__attribute_memory_clock_rate": 3.0,  # kHz
    "device__attribute_fb_bus_width": 16.0,
}


def test_operations_equal_those_of_the_roofline_chart():
    metrics = operations(RAW.get, RAW)
    assert metrics["fp32_flops"] == (1 + 2 + 2 * 4) * 100 * 2
    assert metrics["fp32_peak_flops_per_s"] == 2 * 8 * 100
    assert (metrics["fp16_flops"], metrics["fp16_peak_flops_per_s"]) == (500, 1000)
    assert metrics["bf16_flops"] is None
    assert metrics["dram_peak_bytes_per_s"] == 3000 * 2 * 16 / 8
    assert metrics["fp64_flops"] is None
    assert set(metrics) == set(OPERATIONS)
    metrics = operations({**RAW, "smsp__sass_thread_inst_executed_op_fmul_pred_on.sum.per_cycle_elapsed": None}.get, ())
    assert (metrics["fp32_flops"], metrics["fp16_flops"]) == (None, None)  # if a part of the operations is not known


def test_the_operations_of_tensor_cores_follow_from_the_shapes_of_their_instructions():
    for opcodes, flops in [
        (["HMMA.16816.F32.BF16"], {"bf16": 2 * 16 * 8 * 16 * 10}),
        (["HMMA.16816.F32", "HMMA.16816.F16"], {"fp16": 2 * (2 * 16 * 8 * 16 * 10)}),
        (["HMMA.1688.F32.TF32", "HMMA.1684.F32.TF32"], {"tf32": 2 * 16 * 8 * (8 + 4) * 10}),
        (["DMMA.884", "DMMA.16x8x16"], {"fp64_tensor": 2 * (8 * 8 * 4 + 16 * 8 * 16) * 10}),
        (["HGMMA.64x256x16.F32"], {"fp16": 2 * 64 * 256 * 16 * 10 / 4}),
        (["HGMMA.64x256x8.F32.TF32"], {"tf32": 2 * 64 * 256 * 8 * 10 / 4}),
        (["QGMMA.64x256x32.F32.E4M3.E4M3"], {"fp8": 2 * 64 * 256 * 32 * 10 / 4}),
        (["QMMA.16832.F32.E4M3.E5M2"], {"fp8": 2 * 16 * 8 * 32 * 10}),
        (["FFMA", "HFMA2.MMA", "IMMA.16816.S8.S8"], {}),
    ]:
        instructions = [
            Instruction(16 * index, f"@P0 {opcode} R0, R4, R8, R0", {"instructions": 10.0})
            for index, opcode in enumerate(opcodes)
        ]
        none = dict.fromkeys(("fp64_tensor", "tf32", "bf16", "fp16", "fp8"), 0.0)
        assert tensor_flops(instructions) == none | flops, (opcodes, flops)


def test_nothing_is_claimed_of_tensor_cores_whose_instructions_are_not_known():
    for opcode in ["UTCHMMA", "HMMA.SP.16832.F32.BF16", "HMMA.999.F32"]:
        known = Instruction(0, "HMMA.16816.F32 R0, R4, R8, R0", {"instructions": 10.0})
        assert tensor_flops([known, Instruction(16, f"{opcode} R0, R4, R8, R0", {"instructions": 10.0})]) == {}, opcode
        assert tensor_flops([Instruction(0, "HMMA.16816.F32 R0, R4, R8, R0", {"waited_samples": 1.0})]) == {}, opcode


def test_a_product_on_tensor_cores_has_the_operations_of_its_problem(profiled):
    n = 1024
    tensor, scalar = (profiled(f"pairs/product-{name}").metrics for name in ("tensor", "fma"))
    assert tensor["bf16_flops"] == 2 * n**3
    assert scalar["bf16_flops"] == 0
    assert scalar["fp32_flops"] == pytest.approx(2 * n**3, rel=0.01)
