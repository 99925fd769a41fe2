"""What a verdict rests on: in the columns of a comparison, in the lines below a run's table."""

import io
import math
from dataclasses import replace

import pytest
from rich.console import Console

from perfsvc.model import CacheState, Case, Cause, Judgement, Series, Status, Verdict
from perfsvc.report.export.objects import plain, run_json
from perfsvc.report.rows import ComparedRun, ResultRow, RunReport
from perfsvc.report.tables.comparison import comparison_table
from perfsvc.report.tables.run import run_table
from perfsvc.report.wording import changed_lines, reason_lines

SERIES = Series(Case("transpose", "tiled", (("n", 64),)), "GPU-1", "NVIDIA H200")
SLOWER = Judgement(
    SERIES,
    Verdict.REGRESSION,
    "beyond the threshold of 3 %",
    ratio=1.05,
    low=1.04,
    high=1.06,
    smallest=0.03,
    baseline_replicas=3,
    candidate_replicas=5,
    cause=Cause.TOOLCHAIN,
)
DOUBTFUL = replace(SLOWER, verdict=Verdict.INCONCLUSIVE, cause=None, ratio=1.01, low=0.99, high=1.03)


def of(variant: str, judgement: Judgement = DOUBTFUL, **given: float) -> Judgement:
    case = replace(SERIES.case, variant=variant)
    return replace(judgement, series=replace(SERIES, case=case), **given)  # type: ignore[arg-type]


def show(table: object, width: int = 120) -> str:
    out = io.StringIO()
    Console(file=out, width=width, highlight=False, _environ={}).print(table)
    return out.getvalue()


def compared(*judgements: Judgement, width: int = 120) -> str:
    return show(comparison_table(None, ComparedRun("2", 2), judgements), width)


def ran(*judgements: Judgement) -> RunReport:
    rows = [ResultRow(one.series.case, "GPU-1", "NVIDIA H200", "cuda", Status.OK, judgement=one) for one in judgements]
    return RunReport(2, rows)


def test_a_comparison_shows_the_smallest_visible_change_the_replicas_and_the_cause() -> None:
    line = next(line for line in compared(SLOWER).splitlines() if line.startswith("regression"))
    assert " ".join(line.split()) == "regression toolchain transpose/tiled[n=64] – – +5.0 % +4.0 % to +6.0 % 3 % 3 / 5"


@pytest.mark.parametrize("width", [60, 80, 100, 120])
def test_no_line_of_a_comparison_is_wider_than_its_terminal(width: int) -> None:
    assert max(map(len, compared(SLOWER, DOUBTFUL, width=width).splitlines())) <= width


def test_the_full_evidence_of_a_change_stands_below_the_run() -> None:
    assert (
        "regression transpose/tiled[n=64]: +5.0 % (+4.0 % to +6.0 %), 3 / 5 replicas, 3 % would have shown, "
        "cause: toolchain; beyond the threshold of 3 %"
    ) in " ".join(show(run_table(ran(SLOWER))).split())


def test_inconclusive_series_share_one_short_line() -> None:
    doubtful = [of("a"), of("b", low=0.9), of("c"), of("d"), of("e")]
    for lines in (reason_lines(doubtful), changed_lines(doubtful)):
        (line,) = lines
        assert line.plain == (
            "inconclusive, nothing above 3 to 11 %: transpose/a[n=64], transpose/b[n=64], transpose/c[n=64] and 2 more"
        )
    assert "nothing above 3 %: transpose/a[n=64]" in show(run_table(ran(of("a"))))


@pytest.mark.parametrize("high", [None, math.inf])
def test_an_unbounded_inconclusive_series_keeps_its_reason(high: float | None) -> None:
    (line,) = reason_lines([replace(DOUBTFUL, low=0.0 if high else None, high=high, reason="one replica")])
    assert line.plain == "inconclusive transpose/tiled[n=64]: one replica"


def test_a_bound_is_the_far_end_of_the_interval() -> None:
    (faster,) = reason_lines([replace(DOUBTFUL, low=0.8, high=1.1)])
    assert "nothing above 25 %" in faster.plain


def test_cache_state_and_metric_are_named_if_there_are_several() -> None:
    warm = replace(SLOWER, series=replace(SERIES, cache=CacheState.WARM))
    hops = replace(SLOWER, series=replace(SERIES, metric="hops"), reason="more hops")
    lines = [line.plain for line in reason_lines([SLOWER, warm, hops])]
    assert lines[0].startswith("regression transpose/tiled[n=64] cold, transpose/tiled[n=64] warm: ")
    assert lines[1].startswith("regression transpose/tiled[n=64] cold hops: more hops")


def test_json_has_the_cause_and_the_smallest_visible_change() -> None:
    assert {plain(SLOWER)[name] for name in ("cause", "smallest", "candidate_replicas")} == {"toolchain", 0.03, 5}
    (row,) = run_json(ran(SLOWER))["results"]
    assert (row["cause"], row["smallest"], row["baseline_replicas"]) == ("toolchain", 0.03, 3)
