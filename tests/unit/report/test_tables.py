import json
import re
from dataclasses import replace
from datetime import UTC, datetime

from perfsvc.errors import SuiteError
from perfsvc.model import (
    CacheState,
    Case,
    DeviceInfo,
    HistoryRow,
    Judgement,
    Series,
    Status,
    Verdict,
)
from perfsvc.report import wording
from perfsvc.report.export.objects import run_json
from perfsvc.report.rows import CheckRow, ComparedRun, ResultRow, RunReport
from perfsvc.report.tables.comparison import comparison_table
from perfsvc.report.tables.history import history_table
from perfsvc.report.tables.lists import cases_table, devices_table, doctor_table
from perfsvc.report.tables.run import run_table
from tests.unit.report.terminal import show

H100 = "NVIDIA H100 80GB HBM3"
CASE = Case("transpose", "tiled-TILE32-PAD1", (("n", 8192), ("dtype", "f32")))


OLD, NEW = ComparedRun("11", 11), ComparedRun("12", 12)


def judgement(verdict: Verdict, ratio: float | None = None, *, case: Case = CASE, device: str = "GPU-1") -> Judgement:
    low, high = (ratio * 0.99, ratio * 1.01) if ratio else (None, None)
    levels = (1e-5, 1e-5 * ratio) if ratio else (None, None)
    return Judgement(Series(case, device, H100), verdict, "why it is so", ratio, low, high, 11, 12, *levels)


def row(
    judged: Judgement | None = None, *, case: Case = CASE, status: Status = Status.OK, **others: object
) -> ResultRow:
    values: dict[str, object] = {
        "median_s": 2.1e-4,
        "low_s": 2.09e-4,
        "high_s": 2.11e-4,
        "bandwidth_bytes_per_s": 2.56e12,
        "max_error": 1.2e-7,
    }
    if status is not Status.OK:
        values = {"reason": "the reason\nin full", "cure": "the cure"}
    return ResultRow(case, "GPU-1", H100, "cuda", status, judgement=judged, **{**values, **others})  # type: ignore[arg-type]


# --- a run -----------------------------------------------------------------------------------------------------------


def test_no_line_is_wider_than_the_terminal_and_no_case_is_cut() -> None:
    every = run_table(RunReport(12, [row(judgement(verdict, 1.05)) for verdict in Verdict]))
    usual = row(judgement(Verdict.REGRESSION, 1.05), case=Case("matmul", "shared_tile-TILE16", (("n", 64),)))
    for width in (60, 80, 88, 95, 100, 160):
        text = show(every, width)
        assert max(map(len, text.splitlines())) <= width
        assert "…" not in text
        if width >= 80:
            assert "transpose/tiled-TILE32-PAD1" in text, width
            assert "[n=8192,dtype=f32]" in text, width
            (line,) = [line for line in show(run_table(RunReport(12, [usual])), width).splitlines() if line[:1] == "✓"]
            for part in ("matmul/shared_tile-TILE16[n=64]", "210.0 µs", "2.56 TB/s", "+5.0 % regression"):
                assert part in line, width
    assert "transpose/tiled-TILE32-PAD1 " in show(
        run_table(RunReport(12, [row(judgement(Verdict.REGRESSION, 1.05))])), 80
    )


def test_a_wide_terminal_shows_flops_of_arithmetic_cases() -> None:
    bound = row(flops_per_s=5.5e13)
    assert "55.0 T" in show(run_table(RunReport(1, [bound])), 140)
    assert "55.0 T" not in show(run_table(RunReport(1, [bound])), 80)
    assert "FLOP/s" not in show(run_table(RunReport(1, [row(flops_per_s=1e11)])), 140)


def test_each_device_has_its_table_and_the_cpu_device_its_warning() -> None:
    cpu = replace(row(), device="cpu-1", device_model="AMD EPYC", device_kind="cpu")
    text = show(run_table(RunReport(1, [row(), cpu])))
    assert text.index(H100) < text.index("AMD EPYC") < text.index("say nothing about a GPU")
    assert "say nothing" not in show(run_table(RunReport(1, [row()])))


def test_broken_benchmark_files_are_named_with_line_numbers() -> None:
    problem = SuiteError("axis n is empty", path="kernels/x/bench.py", line=3, cure="give it a point")
    text = show(run_table(RunReport(1, [], problems=[problem])))
    assert "kernels/x/bench.py:3: axis n is empty" in text
    assert "cure: give it a point" in text
    assert "nothing measured" in text


def test_colour_is_for_terminals_only_and_never_the_only_sign() -> None:
    table = run_table(RunReport(1, [row(judgement(verdict, 1.05)) for verdict in Verdict]))
    assert "\x1b[" in show(table, colour=True)
    text = show(table)
    assert "\x1b[" not in text
    assert all(verdict.value in text for verdict in Verdict)


# --- a comparison ----------------------------------------------------------------------------------------------------


def test_a_metric_other_than_time_is_named_without_seconds_and_counts_name_only_verdicts_that_occur() -> None:
    judged = judgement(Verdict.REGRESSION, 2.0)
    errors = replace(judged, series=replace(judged.series, metric="max_error"))
    text = show(comparison_table(OLD, NEW, [errors]), 140)
    assert f"{CASE.id} max_error" in text
    assert "µs" not in text
    found = [judgement(Verdict.UNCHANGED)] * 8 + [judgement(Verdict.REGRESSION), judgement(Verdict.NEW)]
    assert wording.counts(found) == "1 regression, 0 improvements, 8 unchanged, 1 new"


# --- for programs ----------------------------------------------------------------------------------------------------


def test_json_of_a_run_has_null_for_infinity_and_names_broken_files() -> None:
    rows = [row(judgement(Verdict.REGRESSION, 1.05), max_error=float("inf")), row(status=Status.FAILED)]
    problem = SuiteError("axis n is empty", path="bench.py", line=3, cure="give it a point")
    found = json.loads(json.dumps(run_json(RunReport(12, rows, problems=[problem])), allow_nan=False))
    assert [result["max_error"] for result in found["results"]] == [None, None]
    assert found["problems"] == [{"path": "bench.py", "line": 3, "what": "axis n is empty", "cure": "give it a point"}]


# --- lists -----------------------------------------------------------------------------------------------------------


def history(run: int, median_s: float | None, status: Status = Status.OK, reason: str = "") -> HistoryRow:
    of_run = (run, datetime(2026, 11, 21, 9, tzinfo=UTC), "0123456789abcdef", True, "")
    interval = (0.99 * median_s, 1.01 * median_s) if median_s else (None, None)
    return HistoryRow(*of_run, CASE.id, "GPU-1", H100, CacheState.COLD, status, reason, median_s, *interval, 3)


def test_a_sparkline_without_room_for_all_runs_shows_the_newest() -> None:
    rows = [history(run, 2e-5 if run == 250 else 1e-5) for run in range(1, 251)]
    lines = [line.rstrip() for line in show(history_table(CASE.id, rows), width=100).splitlines()]
    assert lines[1:3] == [99 * "▁" + "█", "chart: the newest 100 of 250 runs"]
    assert "chart:" not in show(history_table(CASE.id, rows[:100]), width=100)


def test_devices_are_listed_with_their_known_properties() -> None:
    device = DeviceInfo("cuda", "cuda:GPU-1", "GPU-1", H100, "sm_90", multiprocessors=132, clock_hz=1.98e9)
    text = show(devices_table([device], {"GPU-1": "13.0"}, {("cuda:GPU-1", "cuda:GPU-2"): "NVLink"}))
    assert "cuda:GPU-1 and cuda:GPU-2 are connected by NVLink" in text
    for part in (H100, "--device cuda:GPU-1", "132", "1.980 GHz", "13.0", "1 device"):
        assert part in text
    assert "memory" not in text


def test_the_doctor_names_the_cure_of_what_is_not_ok() -> None:
    checks = [
        CheckRow("compiler", True, "g++ 13", "never shown"),
        CheckRow("driver", None, "none", "install the driver"),
        CheckRow("database", False, "a newer schema", "upgrade perfsvc"),
    ]
    text = show(doctor_table(checks))
    for part in ("✓ ok", "! optional", "✗ missing", "driver: install the driver", "database: upgrade perfsvc"):
        assert part in text
    assert "never shown" not in text


def test_cases_are_listed_without_mistaking_their_points_for_styles() -> None:
    row = {"case": "dot/tree[red]", "kind": "kernel", "graph": "", "caches": ["cold", "warm"]}
    text = show(cases_table([row | {"requires": ["cuda", "sm_90"]}]))
    assert "dot/tree[red]" in text
    assert re.search(r"kernel +cold, warm +cuda, sm_90", text)
    assert "1 case" in text
