"""What a verdict rests on: in the columns of a comparison, in the lines below a run's table."""

import math
from dataclasses import replace

from perfsvc.model import CacheState, Case, Cause, Judgement, Series, Status, Verdict
from perfsvc.report.rows import ComparedRun, ResultRow, RunReport
from perfsvc.report.tables.comparison import comparison_table
from perfsvc.report.tables.run import run_table
from perfsvc.report.wording import counts, possible_change, verdict_lines, verdict_sentence, verdict_words
from tests.unit.report.terminal import show

SERIES = Series(Case("transpose", "tiled", (("n", 64),)), "GPU-1", "NVIDIA H200")
CHANGE = {"ratio": 1.05, "low": 1.04, "high": 1.06, "smallest": 0.03, "baseline_replicas": 3, "candidate_replicas": 5}
SLOWER = Judgement(SERIES, Verdict.REGRESSION, "beyond the threshold of 3 %", **CHANGE, cause=Cause.TOOLCHAIN)
DOUBTFUL = replace(SLOWER, verdict=Verdict.INCONCLUSIVE, cause=None, ratio=1.01, low=0.99, high=1.03)


def of(variant: str, judgement: Judgement = DOUBTFUL, **given: float) -> Judgement:
    case = replace(SERIES.case, variant=variant)
    return replace(judgement, series=replace(SERIES, case=case), **given)  # type: ignore[arg-type]


def compared(*judgements: Judgement, width: int = 120) -> str:
    return show(comparison_table(None, ComparedRun("2", 2), judgements), width)


def ran(*judgements: Judgement) -> RunReport:
    rows = [ResultRow(one.series.case, "GPU-1", "NVIDIA H200", "cuda", Status.OK, judgement=one) for one in judgements]
    return RunReport(2, rows)


def test_inconclusive_series_share_one_short_line() -> None:
    doubtful = [of("a"), of("b", low=0.9), of("c"), of("d"), of("e")]
    for figures in (True, False):
        (line,) = verdict_lines(doubtful, figures=figures)
        assert line.plain == (
            "inconclusive, too noisy to tell: transpose/b[n=64] (up to 3 % slower or 10 % faster), "
            "transpose/a[n=64] (up to 3 % slower or 1 % faster), transpose/c[n=64] (up to 3 % slower or 1 % faster) "
            "and 2 more"
        )
    assert "too noisy to tell: transpose/a[n=64] (up to 3 % slower or 1 % faster)" in show(run_table(ran(of("a"))))


def test_an_unbounded_inconclusive_series_keeps_its_reason():
    for high in [None, math.inf]:
        doubtful = replace(DOUBTFUL, low=0.0 if high else None, high=high, reason="one replica")
        (line,) = verdict_lines([doubtful], figures=False)
        assert line.plain == "inconclusive transpose/tiled[n=64]: one replica", high


def test_a_bound_is_the_far_end_of_the_interval_and_beyond_twice_as_long_a_multiple() -> None:
    assert possible_change(replace(DOUBTFUL, low=0.8, high=1.1)) == "up to 10 % slower or 20 % faster"
    assert possible_change(replace(DOUBTFUL, low=1.005, high=1.015)) == "up to 1.5 % slower"
    assert possible_change(replace(DOUBTFUL, low=0.98, high=0.99)) == "up to 2 % faster"
    wild = replace(DOUBTFUL, low=0.6, high=19.2)
    assert possible_change(wild) == "up to 19 times as long or 40 % faster"
    wilder = replace(wild, low=0.002, high=378.65)
    assert possible_change(wilder) == "up to 380 times as long or more than 99 % faster"
    energy = replace(wild, series=replace(SERIES, metric="energy_j"))
    assert possible_change(energy) == "up to 19 times as high or 40 % lower"
    assert verdict_sentence(wild) == (
        "inconclusive transpose/tiled[n=64]: up to 19 times as long or 40 % faster, too noisy to tell"
    )


def test_a_sentence_has_the_levels_the_evidence_and_the_reason() -> None:
    confirmed = replace(SLOWER, baseline_s=1e-4, candidate_s=1.05e-4, cause=Cause.KERNEL)
    assert verdict_sentence(confirmed) == (
        "regression transpose/tiled[n=64]: +5.0 % (+4.0 % to +6.0 %), 100.0 µs → 105.0 µs, 3 / 5 replicas, "
        "a change of 3 % or more would have been found, cause: kernel; beyond the threshold of 3 %"
    )
    assert verdict_sentence(replace(SLOWER, cause=Cause.NOISE, reason="the code is the same on both sides")) == (
        "noise transpose/tiled[n=64]: +5.0 % (+4.0 % to +6.0 %), 3 / 5 replicas, "
        "a change of 3 % or more would have been found; the code is the same on both sides"
    )
    same = replace(SLOWER, verdict=Verdict.UNCHANGED, ratio=1.0, low=0.99, high=1.01, cause=None, reason="")
    assert verdict_sentence(same) == "unchanged transpose/tiled[n=64]: 0.0 % (-1.0 % to +1.0 %)"
    assert verdict_sentence(Judgement(SERIES, Verdict.NEW)) == "new transpose/tiled[n=64]: new"


def test_what_no_code_moved_is_never_called_a_regression():
    for cause in [Cause.NOISE, Cause.ENVIRONMENT]:
        moved = of("a", SLOWER), of("b", replace(SLOWER, cause=cause)), of("c", replace(SLOWER, cause=cause))
        by = "noise" if cause is Cause.NOISE else "the environment"
        assert counts(moved) == f"1 regression, 2 moved by {by}, 0 improvements, 0 unchanged", cause
        for text in (compared(*moved[1:]), show(run_table(ran(*moved[1:])))):
            assert "0 regressions" in text, cause
            assert "regression " not in text, cause
            assert cause.value in text, cause
        assert compared(*moved).count("regression toolchain ") == 1, cause


UNCHANGED = replace(SLOWER, verdict=Verdict.UNCHANGED, cause=None, ratio=1.002, reason="within the threshold of 1 %")
BUT = "beyond the threshold of 1 %, but with the same code as in run 1, and too noisy to tell"
SAME_CODE = replace(UNCHANGED, ratio=2.39, reason=f"{BUT}; the times allow -50.0 % to +800.0 %")


def test_an_unchanged_series_shows_why_only_if_its_level_changed_visibly():
    for judgement, beside, line in [
        (UNCHANGED, "", ""),
        (replace(UNCHANGED, ratio=1.004, reason="the same code as in run 1; the times allow -9 % to 8 %"), "", ""),
        (SAME_CODE, " same code", f": {BUT}"),
        (replace(UNCHANGED, ratio=0.7, reason="within the threshold of 50 %"), "", ": within the threshold of 50 %"),
    ]:
        name = "transpose/tiled[n=64]"
        assert verdict_words(judgement).plain == f"unchanged{beside}", (judgement, beside, line)
        assert [text.plain for text in verdict_lines([judgement])] == ([f"unchanged {name}{line}"] if line else [])
        rows = [text for text in show(run_table(ran(judgement))).splitlines() if "% unchanged" in text]
        assert [("same code" in row, name in row) for row in rows] == [(bool(beside), True)], (judgement, beside, line)
    other = replace(of("naive", SAME_CODE), reason=f"{BUT}; the times allow -9.0 % to +700.0 %")
    (line,) = verdict_lines([SAME_CODE, other])  # series with the same reason share a line
    assert line.plain == f"unchanged transpose/tiled[n=64], transpose/naive[n=64]: {BUT}"


def test_devices_cache_states_and_metrics_are_named_in_sentences_if_there_are_several() -> None:
    other = replace(SLOWER, series=replace(SERIES, device="GPU-2"), ratio=1.5)
    first, second = (line.plain for line in verdict_lines([SLOWER, other]))
    assert first.startswith("regression transpose/tiled[n=64] on GPU-1: +5.0 %")
    assert second.startswith("regression transpose/tiled[n=64] on GPU-2: +50.0 %")
    warm = replace(SLOWER, series=replace(SERIES, cache=CacheState.WARM))
    hops = replace(SLOWER, series=replace(SERIES, metric="hops"), reason="more hops")
    lines = [line.plain for line in verdict_lines([SLOWER, warm, hops], figures=False)]
    assert lines[0].startswith("regression transpose/tiled[n=64] cold, transpose/tiled[n=64] warm: ")
    assert lines[1].startswith("regression transpose/tiled[n=64] cold hops: more hops")
