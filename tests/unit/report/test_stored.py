import io
import re
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from rich.console import Console

from perfsvc import units
from perfsvc.judge import level_of_metric
from perfsvc.model import Case, Judgement, Series, Verdict
from perfsvc.report.export.frames import frame
from perfsvc.report.stored import stored_table
from perfsvc.report.tables.layout import spread

MEDIANS = (1e-5, 2e-5, 4e-5)


def columns(**changed: list[Any]) -> dict[str, list[Any]]:
    """Three replicas of a case that also returns a metric."""
    same = {
        "run": 7,
        "label": "nightly",
        "commit": "0123456789abcdef",
        "host": "box",
        "started_at": datetime(2026, 11, 21, 9, 30, tzinfo=UTC),
        "device": "GPU-1",
        "device_kind": "cuda",
        "device_model": "NVIDIA H100",
        "case": "dot/tree[n=4096]",
        "benchmark": "dot",
        "variant": "tree",
        "point": "n=4096",
        "version": 1,
        "cache": "cold",
        "status": "ok",
        "reason": "",
        "low_s": 1e-5,
        "high_s": 4e-5,
        "samples": 100,
        "flops_per_s": None,
        "max_error": 1e-7,
        "mean_error": 1e-8,
        "metrics": {"hops": 3.0},
        "warmup": 11,
        "note": "",
        "stopped": "precision",
        "slowdowns": "",
        "rejected_batches": 0,
        "sm_clock_hz": 1.98e9,
        "temperature_c": 54.0,
        "power_w": 412.0,
        "noise_within": 0.004,
        "noise_between": 0.001,
        "copy_bytes_per_s": 4e12,
        "read_bytes_per_s": 3e12,
    }
    own = {
        "replica": [0, 1, 2],
        "median_s": list(MEDIANS),
        "bandwidth_bytes_per_s": [6e7 / median for median in MEDIANS],
        "peak_share": [6e7 / median / 4e12 for median in MEDIANS],
    }
    return {name: [value] * 3 for name, value in same.items()} | own | changed


def show(of: dict[str, list[Any]]) -> str:
    out = io.StringIO()
    Console(file=out, width=120, highlight=False, _environ={}).print(stored_table(frame(of)))
    return out.getvalue()


def test_a_stored_run_shows_the_share_of_the_anchor_where_there_is_one() -> None:
    assert "of reference" not in show(columns())
    text = show(columns(relative_to=["tree"] * 3))
    assert "of reference" in text
    assert "100 %" in text


def test_a_stored_run_is_shown_with_the_level_that_verdicts_compare() -> None:
    level = level_of_metric(MEDIANS)
    text = show(columns())
    assert text.startswith("run 7  2026-11-21 09:30 UTC  nightly  012345678  box\n")
    shown = (
        units.seconds(level.median_s),
        spread(level.median_s, level.low_s, level.high_s),
        "3.00 TB/s",
        "75 %",
        "1.0e-07",
    )
    assert re.search(rf"^✓  dot/tree\[n=4096\] +{' +'.join(map(re.escape, shown))}", text, re.MULTILINE)
    assert re.search(r"^ +hops +3 ", text, re.MULTILINE)
    assert text.rstrip().endswith("run 7: 1 ok")


def test_a_stored_run_is_shown_with_its_verdicts_on_the_time_and_on_a_metric() -> None:
    series = Series(Case("dot", "tree", (("n", 4096),)), "GPU-1", "NVIDIA H100")
    time = Judgement(series, Verdict.REGRESSION, ratio=1.25, baseline_run=3, candidate_run=7)
    hops = Judgement(replace(series, metric="hops"), Verdict.IMPROVEMENT, ratio=0.5, baseline_run=3, candidate_run=7)
    of_another_run = Judgement(series, Verdict.UNCHANGED, ratio=1.0, baseline_run=1, candidate_run=6)
    out = io.StringIO()
    table = stored_table(frame(columns()), [time, hops, of_another_run])
    Console(file=out, width=140, highlight=False, _environ={}).print(table)
    assert re.search(r"^✓  dot/tree\[n=4096\] .* \+25\.0 % regression", out.getvalue(), re.MULTILINE)
    assert re.search(r"^ +hops .* -50\.0 % improvement", out.getvalue(), re.MULTILINE)
    assert out.getvalue().rstrip().endswith("run 7: 1 ok; 1 regression, 1 improvement, 0 unchanged")


def test_a_case_that_is_not_ok_is_shown_with_its_reason_and_without_a_time() -> None:
    text = show(columns(status=["ok", "wrong", "ok"], reason=["", "out differs", ""]))
    assert "✗ dot/tree[n=4096] wrong: out differs" in text
    assert "µs" not in text


def test_what_measured_nothing_says_so() -> None:
    assert show({name: [] for name in columns()}) == "nothing measured\n"


@pytest.mark.parametrize("samples", [1, 0])
def test_a_single_sample_tells_no_spread(samples: int) -> None:
    one = {name: values[:1] for name, values in columns(samples=[samples] * 3).items()}
    assert "±" not in show(one)
