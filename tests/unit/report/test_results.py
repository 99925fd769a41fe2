"""Stored measurements become the rows of a run's table."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from perfsvc import judge
from perfsvc.model import CacheState, Case, Judgement, Peak, Series, Status, Verdict
from perfsvc.report.export.frames import frame
from perfsvc.report.results import run_report
from perfsvc.report.rows import ResultRow, RunReport
from perfsvc.report.tables.run import run_table, run_tables
from tests.unit.report import stored, terminal

MEDIANS = (1e-5, 2e-5, 4e-5)
CASE = Case("dot", "tree", (("n", 4096),))
SERIES = Series(CASE, "GPU-1", "NVIDIA H100")
KEY = ("GPU-1", CASE.id, CacheState.COLD)


def columns(**changed: list[Any]) -> dict[str, list[Any]]:
    """Return three replicas of a case that also returns a metric."""
    same = {"run": 7, "label": "nightly", "host": "box", "version": 1, "cure": "", "metrics": {"hops": 3.0}}
    own = {
        "replica": [0, 1, 2],
        "median_s": list(MEDIANS),
        "bandwidth_bytes_per_s": [6e7 / median for median in MEDIANS],
        "peak_share": [6e7 / median / 4e12 for median in MEDIANS],
    }
    return stored.columns(3, **{name: [value] * 3 for name, value in same.items()} | own | changed)


def together(*parts: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """Return the measurements of all parts."""
    return {name: [value for part in parts for value in part[name]] for name in parts[0]}


def report(of: dict[str, list[Any]], *judgements: Judgement, batches: dict[Any, Any] | None = None) -> RunReport:
    return run_report(7, frame(of), judgements, batches or {})


def only_row(of: dict[str, list[Any]], *judgements: Judgement) -> ResultRow:
    (row,) = report(of, *judgements).rows
    return row


def show(shown: RunReport, width: int = 120) -> str:
    return terminal.show(run_table(shown), width)


# --- rows ------------------------------------------------------------------------------------------------------------


def test_replicas_become_one_row_with_their_level_and_the_work_over_it() -> None:
    row = only_row(columns(max_error=[1e-7, 3e-7, 2e-7], flops_per_s=[4e9, 2e9, 1e9]))
    ends = [float(end[0]) for end in judge.levels_of(np.array([MEDIANS]))]
    assert (row.median_s, row.low_s, row.high_s) == pytest.approx(ends)
    assert row.bandwidth_bytes_per_s == pytest.approx(3e12)
    assert row.flops_per_s == pytest.approx(2e9)
    assert row.peak_share == pytest.approx(0.75)
    assert row.max_error == 3e-7
    assert (row.device_model, row.device_kind, row.status, row.replicas) == ("NVIDIA H100", "cuda", Status.OK, 3)
    assert (row.noise_within, row.noise_between, row.noise_places) == (0.004, 0.001, 0.002)


def test_the_level_of_a_row_is_the_one_that_its_verdict_compares() -> None:
    before, after = [(1.0,), (1.1,), (1.5,)], [(1.0,), (1.2,), (1.2,)]
    [verdict] = judge.verdicts(
        {SERIES: judge.level_of_samples(before, 1)},
        {SERIES: judge.level_of_samples(after, 7)},
        threshold=0.03,
    )
    row = only_row(columns(median_s=[1.0, 1.2, 1.2]), verdict)
    assert row.judgement is verdict
    assert row.median_s == pytest.approx(verdict.candidate_s)
    assert row.median_s == pytest.approx(verdict.baseline_s * verdict.ratio)


def test_one_sample_has_no_interval_and_one_replica_has_its_own():
    for samples, interval in ((1, (None, None)), (0, (None, None)), (100, pytest.approx((1e-5, 4e-5)))):
        single = {name: values[:1] for name, values in columns(samples=[samples] * 3).items()}
        row = only_row(dict(single))
        assert row.median_s == pytest.approx(1e-5)
        assert (row.low_s, row.high_s) == interval, samples
        assert ("±" in show(report(single))) is (samples > 1)


def test_the_worst_replica_gives_status_reason_and_cure_and_no_time() -> None:
    row = only_row(
        columns(
            status=["ok", "failed", "wrong"], reason=["", "gone", "out differs"], cure=["", "restart", "fix the kernel"]
        )
    )
    assert (row.status, row.reason, row.cure) == (Status.WRONG, "out differs", "fix the kernel")
    assert (row.median_s, row.replicas, row.bandwidth_bytes_per_s) == (None, 1, None)
    text = show(report(columns(status=["ok", "wrong", "ok"], reason=["", "out differs", ""])))
    assert "✗ dot/tree[n=4096] wrong: out differs" in text
    assert "µs" not in text


def test_metrics_have_their_level_and_its_interval() -> None:
    row = only_row(
        columns(metrics=[{"hops": 1.0, "gain": -1.0}, {"hops": 2.0, "gain": 0.0}, {"hops": 4.0, "gain": 1.0}])
    )
    gain, hops = row.metrics
    for metric, values in ((gain, [-1.0, 0.0, 1.0]), (hops, [1.0, 2.0, 4.0])):
        (center,), (low,), (high,) = judge.levels_of(np.array([values]))
        assert (metric.value, metric.low, metric.high) == pytest.approx((center, low, high))
    row = only_row(columns(metrics=[{"hops": 1.0}, {"hops": 2.0}, {}], status=["ok", "ok", "wrong"]))
    assert row.metrics == ()


def test_judgements_belong_to_their_case_and_metric() -> None:
    of_time = Judgement(SERIES, Verdict.REGRESSION)
    of_hops = Judgement(replace(SERIES, metric="hops"), Verdict.UNCHANGED)
    gone = Judgement(replace(SERIES, metric="overlap"), Verdict.MISSING)
    row = only_row(columns(), of_hops, of_time, gone)
    assert row.judgement is of_time
    hops, overlap = row.metrics
    assert (hops.metric, hops.value, hops.judgement) == ("hops", pytest.approx(3.0), of_hops)
    assert (overlap.metric, overlap.value, overlap.judgement) == ("overlap", None, gone)


def test_a_missing_case_has_a_row_of_its_own() -> None:
    gone = Judgement(replace(SERIES, case=replace(CASE, variant="gone")), Verdict.MISSING, "run 1 has it")
    renamed = Judgement(replace(SERIES, case=replace(CASE, variant="renamed")), Verdict.UNCHANGED)
    row, missing = report(columns(), gone, renamed).rows
    assert (row.case, row.judgement) == (CASE, None)
    assert (missing.case.variant, missing.status, missing.reason) == ("gone", None, "run 1 has it")
    assert (missing.judgement, missing.median_s, missing.replicas, missing.device_kind) == (gone, None, 0, "cuda")


def test_each_cache_state_has_a_row_with_its_own_noise_and_level() -> None:
    warm = columns(cache=["warm"] * 3, median_s=[1.0] * 3, noise_within=[None] * 3, noise_between=[None] * 3)
    rows = {row.cache: row for row in report(together(columns(), warm)).rows}
    assert rows[CacheState.COLD].median_s == pytest.approx(2e-5)
    assert (rows[CacheState.COLD].noise_within, rows[CacheState.COLD].noise_between) == (0.004, 0.001)
    assert (rows[CacheState.WARM].median_s, rows[CacheState.WARM].noise_within) == (1.0, None)


def test_rejected_batches_are_counted_over_all_replicas_with_their_reasons() -> None:
    batches = {KEY: {"": 2, "thermal slowdown": 2, "in use by 7": 1}}
    (row,) = report(columns(), batches=batches).rows
    assert row.notes == ("3 of 5 batches rejected: thermal slowdown, in use by 7",)
    (row,) = report(columns(), batches={KEY: {"": 4}}).rows
    assert row.notes == ()


def test_notes_and_reasons_to_stop_are_sentences_each_once() -> None:
    row = only_row(
        columns(note=["not blocked; waited", "waited", ""], stopped=["precision", "sample cap", "precision"])
    )
    assert row.notes == ("not blocked", "waited")
    assert row.stopped == ("precision", "sample cap")


def test_the_measured_peaks_are_those_of_each_gpu() -> None:
    assert report(columns()).peaks == {"GPU-1": Peak(4e12, 3e12)}
    assert report(columns(copy_bytes_per_s=[None] * 3, read_bytes_per_s=[None] * 3)).peaks == {}


# --- the table -------------------------------------------------------------------------------------------------------


def test_a_run_shows_the_relative_speed_if_there_is_a_reference_variant() -> None:
    assert "vs " not in show(report(columns()))
    text = show(report(columns(relative_to=["tree"] * 3)))
    assert "vs tree" in text
    assert "1.00×" in text


def test_a_run_without_measurements_says_so() -> None:
    nothing = report({name: [] for name in columns()})
    assert show(nothing) == "run 7: nothing measured\n"
    assert terminal.show(run_tables([])) == "nothing measured\n"


def test_the_times_at_several_places_are_noted_if_they_differ_much_and_more_than_noise():
    for noise, within, between, notes in [
        (0.05, 0.004, 0.001, ("109.0 µs to 127.0 µs, depending on where its arrays lie",)),
        (0.05, None, None, ("109.0 µs to 127.0 µs, depending on where its arrays lie",)),
        (0.009, 0.004, 0.001, ()),
        (None, 0.004, 0.001, ()),
        (0.05, 0.06, 0.001, ()),
        (0.05, 0.004, 0.3, ()),
    ]:
        noises = {"noise_within": [within] * 3, "noise_between": [between] * 3, "noise_places": [noise] * 3}
        of = columns(**noises, lowest_place_s=[109e-6] * 3, highest_place_s=[127e-6] * 3, note=[""] * 3)
        assert only_row(of).notes == notes, (noise, within, between, notes)
