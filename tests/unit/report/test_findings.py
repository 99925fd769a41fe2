"""Findings as people read them: which run every number is of, on wide and narrow terminals, and who did what when."""

from dataclasses import replace
from datetime import UTC, datetime

from perfsvc.model import (
    CacheState,
    Case,
    Cause,
    ChangeKind,
    EventKind,
    Finding,
    FindingEvent,
    FindingState,
    MovedSeries,
    Series,
)
from perfsvc.report.tables.findings import finding_table, findings_table
from tests.unit.report.terminal import show

AT = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
GPU = "GPU-5e0f3c52-1111-2222-3333-444455556666"
TILED = Series(Case("transpose", "tiled-TILE32-PAD1", (("n", 4096), ("dtype", "f32"))), GPU, "NVIDIA H100 80GB HBM3")
MOVED = MovedSeries(TILED, 1.2, 1.19, 1.21, baseline_run=3, baseline_s=1e-4, candidate_s=1.2e-4, last_run=9)
FOUND = Finding(7, Cause.KERNEL, "1a2b3c4d5..6e7f8a9b0", 5, 9, FindingState.OPEN, "it stayed", "", "", AT, (MOVED,))


def drawn(renderable, width=120):
    return [line.rstrip() for line in show(renderable, width).splitlines()]


def test_no_line_is_wider_than_the_terminal_and_no_change_is_lost():
    for width in [40, 60, 80, 120]:
        long = replace(MOVED, series=replace(TILED, metric="energy_j", cache=CacheState.WARM), recovered_run=11)
        found = replace(FOUND, moved=(MOVED, long), evidence="measured again in A/B pairs, " * 6, owner="ann")
        events = [FindingEvent(1, 7, EventKind.COMMENTED, None, "ann", AT, "the new tiling spills " * 5)]
        for shown in (findings_table([found]), finding_table(found, events)):
            lines = drawn(shown, width)
            assert max(map(len, lines)) <= width, width
            assert sum("+20.0 %" in line for line in lines) == 2, width


CHANGE = {"baseline_s": 1.2e-4, "candidate_s": 1.5e-4, "ratio": 1.25, "low": 1.24, "high": 1.26}
STEP = {"step": 2, "change": ChangeKind.AGAIN, "baseline_run": 8, "first_run": 9}
AGAIN = replace(MOVED, **CHANGE, **STEP, root_cause="6e7f8a9b0..7f8a9b0c1")
TWICE = replace(FOUND, moved=(replace(MOVED, last_run=8), AGAIN))


def test_each_row_of_a_series_that_moved_again_names_its_step():
    for width in [40, 80, 100, 160]:
        lines = drawn(finding_table(TWICE, []), width)
        assert max(map(len, lines)) <= width, width
        changes = {step: next(line for line in lines if f"  {step}  " in line and " %" in line) for step in (1, 2)}
        assert ("+20.0 %" in changes[1], "+25.0 %" in changes[2]) == (True, True), width
        text = " ".join(" ".join(lines).split())
        assert "slower again (step 2) in run 9: 6e7f8a9b0..7f8a9b0c1" in text, width
        assert "+50.0 % since run 3: 100.0 µs → 150.0 µs" in text, width


def test_the_heading_says_how_the_series_moved():
    for kinds, words in [
        ((ChangeKind.REGRESSION, ChangeKind.AGAIN), "slower, in runs 5 to 9"),
        ((ChangeKind.AGAIN,), "slower again, in runs 5 to 9"),
        ((ChangeKind.REGRESSION, ChangeKind.TREND), "slower, by the trend of its history, in runs 5 to 9"),
    ]:
        found = replace(FOUND, moved=tuple(replace(MOVED, change=kind) for kind in kinds))
        assert drawn(findings_table([found]))[0] == f"7 open  {words}, cause: kernel", (kinds, words)


def test_the_list_shows_the_largest_changes_and_how_to_see_the_rest():
    many = [
        replace(MOVED, series=replace(TILED, case=Case("dot", f"v{place}")), ratio=1 + place / 100)
        for place in range(1, 13)
    ]
    text = "\n".join(drawn(findings_table([replace(FOUND, moved=tuple(many))])))
    assert "and 2 more: perfsvc findings show 7" in text
    assert "dot/v12" in text
    assert "dot/v2\n" not in text
    assert "more:" not in "\n".join(drawn(finding_table(replace(FOUND, moved=tuple(many)), [])))


def test_a_gpu_is_named_once_and_each_of_several_is_named():
    one = drawn(findings_table([replace(FOUND, root_cause=f"GPU {GPU}")]))
    assert [GPU in line for line in one].count(True) == 1
    other = replace(MOVED, series=replace(TILED, device="GPU-2"))
    several = drawn(findings_table([replace(FOUND, moved=(MOVED, other))]))
    assert sum("(GPU-2)" in line for line in several) == 1


def test_the_history_shows_each_event_with_time_and_user():
    events = [
        FindingEvent(1, 7, EventKind.RAISED, 5, "", AT, "it stayed"),
        FindingEvent(2, 7, EventKind.COMMENTED, None, "ann", AT, "[bold]spills[/bold] <b>"),
    ]
    lines = drawn(finding_table(FOUND, events))
    assert lines[-2].split() == ["2026-01-02", "03:04", "run", "5", "raised", "it", "stayed"]
    assert lines[-1].endswith("ann    commented  [bold]spills[/bold] <b>")


def test_a_slow_gpu_is_listed_with_its_evidence_and_no_cases():
    slow = replace(FOUND, cause=Cause.SLOW_GPU, root_cause="GPU-1 (NVIDIA H100) on host a", moved=(), evidence="+5 %")
    assert drawn(findings_table([slow], {7: ""}), 100)[:3] == [
        "7 open  cause: slow gpu",
        "  GPU-1 (NVIDIA H100) on host a",
        "  +5 %",
    ]
