"""What stands in and below the table of a run beside times and verdicts."""

import json
from dataclasses import replace
from datetime import UTC, datetime

from perfsvc import units
from perfsvc.model import CacheState, Case, HistoryRow, OverBudget, Peak, RunDetails, Status
from perfsvc.report.export.objects import run_json
from perfsvc.report.rows import Doubt, MetricRow, ResultRow, RunReport
from perfsvc.report.tables.history import history_table
from perfsvc.report.tables.run import run_table
from perfsvc.report.wording import cache_words, some
from tests.unit.report import terminal

H200 = "NVIDIA H200"
CASE = Case("transpose", "tiled-TILE32-PAD1", (("n", 8192),))
OTHER = replace(CASE, variant="naive")
ROW = ResultRow(
    CASE, "GPU-1", H200, "cuda", Status.OK, median_s=2e-4, bandwidth_bytes_per_s=2.6e12, peak="memory", peak_share=0.648
)
PEAK = Peak(copy_bytes_per_s=4.01e12, read_bytes_per_s=3.9e12)


def unmeasured(case: Case = CASE, device: str = "GPU-1") -> OverBudget:
    return OverBudget(device, case, CacheState.COLD, "no time")


def show(shown: RunReport, width: int = 120) -> str:
    return terminal.show(run_table(shown), width)


# --- the measured peak -----------------------------------------------------------------------------------------------


def test_a_share_of_another_peak_names_it_and_the_heading_has_it() -> None:
    rates = {"GPU-1": {"l2": 7.95e12, "fp64": 33.4e12, "fp64_tensor": 66.8e12, "bf16": 915e12}}
    row = replace(ROW, peak="bf16", peak_share=0.79)
    text = show(RunReport(1, [row], peaks={"GPU-1": PEAK}, rates=rates))
    assert "measured peak: copies 4.01 TB/s, reads 3.90 TB/s, BF16 915 TFLOP/s\n" in text
    assert " 79 % BF16 " in text
    double = show(RunReport(1, [replace(ROW, peak="fp64", peak_share=0.5)], rates=rates))
    assert "measured peak: FP64 33.4 TFLOP/s, FP64 tensor 66.8 TFLOP/s\n" in double
    assert " 50 % FP64 " in double
    assert run_json(RunReport(1, [row], rates=rates))["peaks"] == [{"device": "GPU-1", **rates["GPU-1"]}]


def test_a_share_and_a_relative_speed_fit_every_terminal_and_a_narrow_one_drops_the_share():
    compared = replace(ROW, relative_to="copy", relative_speed=1.03)
    for width in (80, 100, 120):
        for row, share in ((ROW, "65 %"), (compared, "1.03×")):
            text = show(RunReport(1, [row], peaks={"GPU-1": PEAK}), width)
            assert share in text, width
            assert max(map(len, text.splitlines())) <= width
    lines = show(RunReport(1, [ROW], peaks={"GPU-1": PEAK}), 60).splitlines()
    (line,) = [line for line in lines if line.startswith("✓")]
    assert CASE.id in line
    assert "2.60 TB/s" in line
    assert "65 %" not in line


def test_a_share_is_a_whole_number_of_per_cent():
    cases = [(0.934, "93 %"), (1.0, "100 %"), (0.01, "1 %"), (0.0099, "<1 %")]
    assert [units.share(fraction) for fraction, _ in cases] == [written for *_, written in cases]


# --- the reference variant -------------------------------------------------------------------------------------------


def test_each_row_has_its_relative_speed_or_nothing() -> None:
    rows = [
        replace(ROW, relative_to="copy", relative_speed=0.964),
        replace(ROW, case=OTHER, relative_to="copy", relative_speed=None, peak="", peak_share=None),
    ]
    lines = show(RunReport(1, rows)).splitlines()
    (heading,) = [line for line in lines if "vs copy" in line]
    first, second = [line for line in lines if line.startswith("✓")]
    at = heading.index("vs copy")
    assert first[at : at + len("vs copy")] == "  0.96×"
    assert not second[at : at + len("vs copy")].strip()


# --- cache states ----------------------------------------------------------------------------------------------------


def test_cold_is_shown_only_for_a_case_with_both_cache_states() -> None:
    warm = replace(ROW, cache=CacheState.WARM)
    alone = replace(ROW, case=OTHER)
    text = show(RunReport(1, [ROW, warm, alone]))
    assert f"{CASE.id} cold " in text
    assert f"{CASE.id} warm " in text
    assert f"{OTHER.id} cold" not in text
    assert f"{CASE.id} warm " in show(RunReport(1, [warm]))
    keys = [("GPU-1", "a", CacheState.COLD), ("GPU-2", "a", CacheState.WARM)]
    assert cache_words(keys) == {keys[0]: "", keys[1]: "warm"}


# --- notes, what was left out, what only explains --------------------------------------------------------------------


def test_a_shared_note_is_shown_once_with_the_names() -> None:
    rows = [replace(ROW, notes=("not blocked", "waited")), replace(ROW, case=OTHER, notes=("not blocked",))]
    lines = show(RunReport(1, rows)).splitlines()
    assert f"! {CASE.id}, {OTHER.id}: not blocked" in lines
    assert f"! {CASE.id}: waited" in lines


def test_auxiliary_metrics_are_in_json_and_not_in_the_table() -> None:
    row = replace(ROW, metrics=(MetricRow("sm_cycles", 4e5), MetricRow("energy_j", 0.1), MetricRow("hops", 3.0)))
    text = show(RunReport(1, [row]))
    assert "hops" in text
    assert "sm_cycles" not in text
    assert "energy_j" not in text
    (found,) = run_json(RunReport(1, [row]))["results"]
    assert [one["metric"] for one in found["metrics"]] == ["sm_cycles", "energy_j", "hops"]


def test_cases_over_budget_are_named_with_reasons() -> None:
    text = show(RunReport(1, [ROW], over_budget=[unmeasured(OTHER)]))
    assert f"– over budget: {OTHER.id}: no time" in text
    assert text.rstrip().endswith("run 1: 1 ok, 1 over budget")
    many = [unmeasured(replace(CASE, variant=f"v{number}")) for number in range(5)]
    text = " ".join(show(RunReport(1, [], over_budget=many), 200).split())
    assert "over budget: transpose/v0[n=8192], transpose/v1[n=8192], transpose/v2[n=8192] and 2 more" in text
    assert "run 1: 5 over budget" in text
    text = show(RunReport(1, [], over_budget=[unmeasured(), unmeasured(device="GPU-2")]))
    assert f"{CASE.id} on GPU-1: no time" in text
    assert f"{CASE.id} on GPU-2: no time" in text
    assert some(["a", "b", "c"]) == "a, b, c"


def test_json_has_the_peaks_the_cases_over_budget_and_the_doubts() -> None:
    doubt = Doubt(CASE, "GPU-1", CacheState.WARM, "memory", 1000, 9e12, 4e12)
    found = run_json(RunReport(1, [ROW], peaks={"GPU-1": PEAK}, over_budget=[unmeasured(OTHER)], doubts=[doubt]))
    found = json.loads(json.dumps(found, allow_nan=False))
    assert found["peaks"] == [{"device": "GPU-1", "copy_bytes_per_s": 4.01e12, "read_bytes_per_s": 3.9e12}]
    (over_budget,) = found["over_budget"]
    assert (over_budget["case"], over_budget["cache"], over_budget["reason"]) == (OTHER.id, "cold", "no time")
    (doubted,) = found["doubts"]
    assert (doubted["case"], doubted["cache"], doubted["declared"]) == (CASE.id, "warm", 1000)
    assert (found["results"][0]["cache"], found["results"][0]["peak_share"]) == ("cold", 0.648)


# --- a history -------------------------------------------------------------------------------------------------------


def test_the_newest_run_of_a_history_shows_all_details_with_units() -> None:
    metrics = {"sm_cycles": 397_281.0, "energy_j": 0.1234, "timer_overhead_s": 1.2e-6, "hops": 3.0}
    noises = {"noise_within": 0.0041, "noise_between": 0.0012}
    details = [
        ({"stopped": "precision"}, {"stopped": "precision"}),
        (noises, {"noise": "0.41 % within replicas, 0.12 % between them"}),
        ({"bandwidth_bytes_per_s": 2.6e12}, {"bandwidth": "2.60 TB/s"}),
        ({"peak": "memory", "peak_share": 0.648}, {"% of peak": "65 %"}),
        ({"sm_clock_hz": 1.98e9}, {"SM clock": "1.980 GHz"}),
        ({"temperature_c": 54.4, "power_w": 412.3}, {"temperature": "54 °C", "power": "412 W"}),
        ({"slowdowns": "power cap", "rejected_batches": 3}, {"slowdowns": "power cap", "rejected": "3 batches"}),
        ({"metrics": metrics}, {"sm_cycles": "397 281", "energy_j": "0.1234 J", "hops": "3"}),
        ({"note": "not blocked"}, {"timer_overhead_s": "1.200 µs", "note": "not blocked"}),
    ]
    stored = RunDetails(**{name: value for known, _ in details for name, value in known.items()})
    ran = (7, datetime(2026, 11, 21, 9, tzinfo=UTC), "", False, "", CASE.id, "GPU-1", H200, CacheState.COLD, Status.OK)
    text = terminal.show(history_table(CASE.id, [HistoryRow(*ran, "", 1e-4, 1e-4, 1e-4, 3, stored)]), 100)
    shown = dict(line.strip().split("  ", 1) for line in text.partition("run 7\n")[2].splitlines() if line)
    expected = {name: text for _, texts in details for name, text in texts.items()}
    assert {name: value.strip() for name, value in shown.items()} == expected
