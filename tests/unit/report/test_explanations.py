"""What a person is shown of two launches: a table, a page, a roofline."""

import json
from dataclasses import replace

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from perfsvc.errors import ReportError
from perfsvc.model import Evidence, Explanation, HotLine, Profile, ProfilerRule, Reason, ReasonKind, SourceLine
from perfsvc.report.export.objects import explanation_json
from perfsvc.report.plots import roofline
from perfsvc.report.tables.profiles import explanation_table, place
from tests.unit.report.terminal import show

PEAKS = {"dram_peak_bytes_per_s": 3e12, "fp32_peak_flops_per_s": 60e12, "fp64_peak_flops_per_s": 30e12}
COUNTED = {"dram_read_bytes": 2e9, "dram_write_bytes": 1e9, "fp32_flops": 6e9, "fp64_flops": 0.0, "tf32_flops": None}
ABOUT = {"device": "NVIDIA H100 <PCIe>", "chip": "sm_90", "ncu_version": "2025.3.1.0"}
BEFORE = Profile("scale", {**PEAKS, **COUNTED, "duration_s": 1e-3}, **ABOUT)
AFTER = replace(BEFORE, metrics={**BEFORE.metrics, "duration_s": 2e-3})
FOUND = Explanation(
    2.0,
    "2.0 × slower: register spills (0 → 3 M accesses to local memory) can account for all of it.",
    (
        Reason(
            ReasonKind.SPILLS,
            1.0,
            "0 → 3 M accesses to local memory",
            (
                Evidence("local_load_requests", 0.0, 3e6),
                Evidence("instructions", 1e6, 50e6),
                Evidence("l1_hit_rate", 0.5, 0.6),
                Evidence("spill_requests", None, 3e6),
                Evidence("registers", 64.0, 6.0),
            ),
            (ProfilerRule("LocalMemory", "Use more registers.", 0.4), ProfilerRule("Other", "No estimate.")),
        ),
        Reason(
            ReasonKind.INSTRUCTIONS, 0.9, "1 M → 50 M", (Evidence("issue_throughput", 0.1, 0.9),), (), ReasonKind.SPILLS
        ),
    ),
)


def shown(width, before=BEFORE, after=AFTER, found=FOUND):
    return show(explanation_table(before, after, found), width)


def test_the_table_shows_the_sentence_the_reasons_and_their_evidence():
    lines = [" ".join(line.split()) for line in shown(100).splitlines()]
    assert lines[0] == "scale"
    assert "before 1.000 ms NVIDIA H100 <PCIe> (sm_90) Nsight Compute 2025.3.1.0" in lines
    assert FOUND.sentence in lines
    assert "100 % register spills 0 → 3 M accesses to local memory" in lines
    assert "90 % more instructions 1 M → 50 M (follows from register spills)" in lines
    assert "instructions 1 000 000 50 000 000 × 50" in lines
    assert "LocalMemory (up to 40 %): Use more registers." in lines
    assert "Other: No estimate." in lines
    assert "issue_throughput" not in shown(100)  # the evidence of a dependent reason
    for width in (60, 80, 120):
        assert max(map(len, shown(width).splitlines())) <= width
    changes = {line.split()[0]: line.split("  ")[-1].strip() for line in shown(100).splitlines() if "_" in line[:20]}
    assert changes["local_load_requests"] == "–"  # of nothing
    assert changes["spill_requests"] == "–"  # of what was not counted
    assert changes["l1_hit_rate"] == "+20.0 %"
    assert "÷ 10.7" in shown(100)
    equal = shown(80, BEFORE, BEFORE, Explanation(1.0, "Both take equally long."))
    assert "Both take equally long." in equal
    assert "share" not in equal


def test_json_has_every_metric_of_both_and_null_for_uncounted_metrics():
    result = json.loads(json.dumps(explanation_json(BEFORE, AFTER, FOUND), allow_nan=False))
    assert result["factor"] == 2.0
    assert [reason["kind"] for reason in result["reasons"]] == ["register spills", "more instructions"]
    assert result["reasons"][1]["follows"] == "register spills"
    assert result["reasons"][0]["evidence"][3] == {"metric": "spill_requests", "before": None, "after": 3e6}
    assert result["after"]["metrics"]["duration_s"] == 2e-3
    assert result["before"]["metrics"]["tf32_flops"] is None


CARRIED = replace(
    FOUND,
    reasons=(
        replace(
            FOUND.reasons[0],
            counted="accesses to local memory",
            before=(HotLine(1.0, "LDL R3, [R1]"),),
            after=(
                HotLine(0.61, "@P0 STL [R1+0x8], R3", 4),
                HotLine(0.3, "LDL R3, [R1+0x8]", 2, SourceLine("../shared/<b>.cuh\x1b[2J", 22)),
            ),
        ),
        replace(FOUND.reasons[1], counted="instructions", after=(HotLine(1.0, "FADD R1, R1, R1"),)),
    ),
)


def test_the_table_shows_where_an_independent_reason_is():
    lines = [" ".join(line.split()) for line in shown(120, found=CARRIED).splitlines()]
    assert "before 100 % accesses to local memory LDL R3, [R1]" in lines
    assert "after 61 % accesses to local memory @P0 STL [R1+0x8], R3 and 3 more STL" in lines
    assert any("../shared/<b>.cuh" in line and ":22 LDL R3, [R1+0x8]" in line for line in lines)
    assert not any("FADD" in line for line in lines), "a reason that follows from another is where the other is"
    line = HotLine(0.61, "STG.E [R4], R7", 4, SourceLine("k.cu", 30), "b[x * n] = a[x];")
    assert place(line) == "k.cu:30  b[x * n] = a[x];"
    assert place(replace(line, changed=True)) == "k.cu:30  b[x * n] = a[x];  (changed)"
    reason = explanation_json(BEFORE, AFTER, CARRIED)["reasons"][0]
    assert reason["counted"] == "accesses to local memory"
    assert reason["after"][1]["source"] == {"file": "../shared/<b>.cuh\x1b[2J", "line": 22}


# --- roofline --------------------------------------------------------------------------------------------------------


def test_a_roofline_point_has_operations_per_byte_and_per_second():
    found = roofline.roofline(BEFORE, AFTER)
    assert found.bandwidth == 3e12
    assert found.ceilings == {"FP32": 60e12}
    assert [(point.name, point.flops_per_byte, point.flops_per_s) for point in found.points] == [
        ("before: scale, FP32", 2.0, 6e12),
        ("after: scale, FP32", 2.0, 3e12),
    ]
    idle = replace(AFTER, metrics={**AFTER.metrics, "fp32_flops": 0.0})
    assert roofline.roofline(idle, idle).points == ()


def test_without_ceilings_there_is_no_roofline():
    for missing in [("dram_peak_bytes_per_s",), ("fp32_peak_flops_per_s",)]:
        without = replace(AFTER, metrics={**AFTER.metrics, **dict.fromkeys(missing)})
        with pytest.raises(ReportError, match="SpeedOfLight_RooflineChart"):
            roofline.roofline(without, without)


def test_measured_peaks_are_the_ceilings_and_the_others_are_named():
    peaks = {"memory": 2.9e12, "l2": 8e12, "fp32": 58e12, "tf32": 450e12, "bf16": 900e12}
    multiplying = replace(AFTER, metrics={**AFTER.metrics, "tf32_flops": 8e11, "fp64_flops": 1e9})
    found = roofline.roofline(BEFORE, multiplying, peaks)
    assert (found.bandwidth, found.ceilings) == (2.9e12, {"FP32": 58e12, "FP64": 30e12, "TF32": 450e12})
    assert found.note == "computed from the clock, not measured: FP64"
    assert [(point.name, point.mark) for point in found.points][-2:] == [
        ("after: scale, FP32", "o"),
        ("after: scale, TF32", "^"),
    ]
    assert roofline.roofline(BEFORE, multiplying, peaks | {"fp64": 29e12}).note == ""
    assert roofline.roofline(BEFORE, AFTER).note == "the ceilings are computed from the clock, not measured"
    assert roofline.roofline(BEFORE, multiplying).ceilings == {"FP32": 60e12, "FP64": 30e12}  # no peak of TF32 is known
    peaks = {"fp32": 66e12, "fp64": 33e12, "fp64_tensor": 67e12, "bf16": 915e12}
    work = dict.fromkeys(("fp64_flops", "fp64_tensor_flops", "bf16_flops"), 1e9)
    found = roofline.roofline(BEFORE, replace(AFTER, metrics={**AFTER.metrics, **work}), peaks)
    texts = ["FP64 33.0 TFLOP/s", "FP32 66.0 TFLOP/s, FP64 tensor 67.0 TFLOP/s", "BF16 915 TFLOP/s"]
    assert [text for _, text in found.labels] == texts  # close ceilings have one text


def test_the_picture_names_its_ceilings_and_its_points_within_its_axes():
    figure = roofline._draw(roofline.roofline(BEFORE, AFTER), "H100")
    FigureCanvasAgg(figure).draw()
    (axes,) = figure.axes
    texts = {text.get_text() for text in (*axes.texts, *axes.get_legend().get_texts())}
    assert {"DRAM 3.00 TB/s", "FP32 60.0 TFLOP/s"} <= texts
    assert {"before: scale, FP32: 6.00 TFLOP/s", "after: scale, FP32: 3.00 TFLOP/s"} <= texts
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    for line in axes.lines:
        assert all(left <= x <= right for x in line.get_xdata())
        assert all(low <= y <= high for y in line.get_ydata())


def test_a_roofline_is_written_as_svg(tmp_path):
    found = roofline.roofline(BEFORE, AFTER)
    roofline.write(found, "H100", tmp_path / "one.svg")
    assert "FP32 60.0 TFLOP/s" in (tmp_path / "one.svg").read_text()
    assert roofline.svg(found, "H100").startswith("<svg")
