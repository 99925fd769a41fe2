"""What a profiler counted, and why a case takes longer, as a person reads it."""

from dataclasses import replace

from perfsvc.model import Case, CaseExplanation, Profile, ProfileResult, ProfilerRule, Reason, ReasonKind
from perfsvc.report.export.objects import plain
from perfsvc.report.tables.profiles import explanation_lines, profile_table, profiled_value
from tests.unit.report.terminal import show

CASE = Case("transpose", "tiled", (("n", 4096),))
METRICS = {"duration_s": 8.611e-5, "sm_clock_hz": 1.992e9, "shared_bank_conflicts": 16420551.0, "tensor_active": None}
PROFILED = ProfileResult(
    CASE,
    run=3,
    binary=7,
    device="GPU-1",
    device_model="NVIDIA H100",
    profiler="ncu",
    sections="full",
    profile=Profile(
        "transpose_tiled", METRICS, (ProfilerRule("SharedMemoryConflicts", "32-way", 0.84),), ncu_version="2025.3"
    ),
    launch=0,
    wall_s=7.0,
)
CONFLICTS = Reason(ReasonKind.BANK_CONFLICTS, 1.0, "1 → 32")
EXPLAINED = CaseExplanation(CASE, "GPU-1", "NVIDIA H100", 1, 2, "2.0 × slower: bank conflicts.", (CONFLICTS,), 2.0)


def test_a_metric_is_written_in_the_unit_of_its_name_and_an_uncounted_one_as_a_dash():
    cases = [
        ("duration_s", 8.611e-5, "86.11 µs"),
        ("sm_clock_hz", 1.992e9, "1.992 GHz"),
        ("dram_read_bytes", 64 * 2.0**20, "64 MiB"),
        ("dram_peak_bytes_per_s", 3.35e12, "3.35 TB/s"),
        ("fp32_peak_flops_per_s", 67.2e12, "67.2 TFLOP/s"),
        ("l2_hit_rate", 0.5003, "50.0 %"),
        ("achieved_occupancy", 0.9291, "92.9 %"),
        ("issue_throughput", 0.0755, "7.5 %"),
        ("shared_bank_conflicts", 16420551.0, "16 420 551"),
        ("waves", 15.515, "15.52"),
        ("registers", 0.0, "0"),
        ("tensor_throughput", None, "–"),
    ]
    assert [profiled_value(name, value) for name, value, _ in cases] == [text for *_, text in cases]


def test_a_profile_shows_its_kernel_every_metric_and_every_rule():
    lines = show(profile_table(PROFILED)).splitlines()
    assert lines[0] == "transpose/tiled[n=4096] of run 3: kernel transpose_tiled"
    assert lines[2] == "ncu 2025.3, set full, 7.000 s"
    assert {line.split()[0] for line in lines if line} >= METRICS.keys()
    assert lines[-1] == "SharedMemoryConflicts (up to 84 %): 32-way"
    for width in (40, 80, 160):
        assert max(map(len, show(profile_table(PROFILED), width).splitlines())) <= width
    failed = replace(PROFILED, profile=None, reason="the driver lets this user read no counters")
    assert show(profile_table(failed)) == f"{CASE}: no profile: the driver lets this user read no counters\n"


def test_an_explanation_is_a_sentence_with_its_evidence_below_or_the_reason_why_it_is_missing():
    assert show(explanation_lines([EXPLAINED])).splitlines() == [
        "why transpose/tiled[n=4096]: 2.0 × slower: bank conflicts.",
        "  bank conflicts 100 %: 1 → 32",
    ]
    blind = replace(EXPLAINED, sentence="", reasons=(), reason="ncu is missing; install it")
    missing = "why transpose/tiled[n=4096]: not explained: ncu is missing; install it\n"
    assert show(explanation_lines([blind])) == missing
    out = show(explanation_lines([EXPLAINED, replace(EXPLAINED, device="GPU-2", profiles=(3, 4))]), 160)
    assert [line.partition(":")[0] for line in out.splitlines() if line.startswith("why")] == [
        f"why {CASE} on NVIDIA H100 (GPU-{number})" for number in (1, 2)
    ]


def test_gpus_that_share_an_explanation_share_its_line():
    first = replace(EXPLAINED, profiles=(1, 2))
    other = replace(first, device="GPU-2", sentence=f"{first.sentence} Profiled on GPU-1.")
    slower = replace(first, case=replace(CASE, variant="naive"))
    lines = show(explanation_lines([first, slower, other]), 200).splitlines()
    assert lines == [
        f"why {CASE} on 2 GPUs of the model NVIDIA H100 (GPU-1, GPU-2): 2.0 × slower: bank conflicts.",
        "  bank conflicts 100 %: 1 → 32",
        "why transpose/naive[n=4096] on NVIDIA H100 (GPU-1): 2.0 × slower: bank conflicts.",
        "  bank conflicts 100 %: 1 → 32",
    ]


def test_json_has_the_parts_of_the_case():
    assert plain(EXPLAINED)["point"] == {"n": 4096}
    assert plain(PROFILED)["case"] == "transpose/tiled[n=4096]"
    assert plain(PROFILED)["profile"]["metrics"]["tensor_active"] is None
