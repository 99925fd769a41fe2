"""The cause of a series that moved, without measuring again."""

from dataclasses import replace

import numpy as np

from perfsvc.judge import SameOnBothSides, compare, moved_together, with_causes
from perfsvc.judge.causes import clock_evidence, settled
from perfsvc.model import TIME, Case, Cause, Direction, Judgement, Series, Verdict

SAME = SameOnBothSides(code=True, source=True, toolkit=True, device=True)
EDITED = SameOnBothSides(code=False, source=False, toolkit=True, device=True)
RECOMPILED = SameOnBothSides(code=False, source=True, toolkit=False, device=True)


def judgement(
    variant: str, verdict: Verdict = Verdict.REGRESSION, *, device: str = "A", metric: str = TIME
) -> Judgement:
    return Judgement(Series(Case("transpose", variant), device, "H100", metric), verdict, "beyond the threshold")


def cause(sides: SameOnBothSides | None, verdict: Verdict = Verdict.REGRESSION) -> Cause | None:
    row = judgement("tiled", verdict)
    [judged] = with_causes([row], {row.series: sides} if sides else {})
    return judged.cause


def test_the_cause_of_what_moved_follows_from_what_both_sides_share() -> None:
    causes = {
        SAME: Cause.NOISE,
        replace(SAME, device=False): Cause.ENVIRONMENT,
        RECOMPILED: Cause.TOOLCHAIN,
        EDITED: Cause.UNCONFIRMED,
        replace(RECOMPILED, toolkit=True): Cause.UNCONFIRMED,
        None: Cause.UNCONFIRMED,
    }
    assert {sides: cause(sides) for sides in causes} == causes
    moved = {Verdict.REGRESSION: Cause.NOISE, Verdict.IMPROVEMENT: Cause.NOISE}
    assert {verdict: cause(SAME, verdict) for verdict in Verdict} == dict.fromkeys(Verdict) | moved


def test_the_evidence_is_appended_to_the_reason() -> None:
    row = judgement("tiled")
    [judged] = with_causes([row], {row.series: SAME})
    assert judged.reason == "beyond the threshold; the code is the same on both sides"
    assert with_causes([row], {})[0].reason == row.reason


def test_an_unsettled_series_of_the_same_code_is_unchanged_and_its_reason_names_a_large_change():
    for ratio, because in [
        (1.004, "the same code as in run 6"),
        (2.39, "beyond the threshold of 1 %, but with the same code as in run 6, and too noisy to tell"),
        (0.5, "beyond the threshold of 1 %, but with the same code as in run 6, and too noisy to tell"),
    ]:
        row = replace(judgement("tiled", Verdict.INCONCLUSIVE), ratio=ratio, low=0.4, high=3.0, baseline_run=6)
        [judged] = settled([row], {row.series: SAME}, lambda _: 0.01)
        assert (judged.verdict, judged.reason) == (Verdict.UNCHANGED, f"{because}; the times allow -60.0 % to +200.0 %")
        assert judged.is_same_code is because.startswith("beyond"), (ratio, because)


def judgements_of(*verdicts: Verdict, device: str = "A") -> list[Judgement]:
    return [judgement(f"v{place}", verdict, device=device) for place, verdict in enumerate(verdicts)]


SLOW, FLAT, FAST = Verdict.REGRESSION, Verdict.UNCHANGED, Verdict.IMPROVEMENT


def test_cases_of_a_gpu_that_move_together_are_blamed_on_the_environment_and_another_gpu_is_not() -> None:
    rows = [*judgements_of(SLOW, SLOW, SLOW, FLAT, FLAT), *judgements_of(SLOW, FLAT, FLAT, FLAT, FLAT, device="B")]
    sides = {row.series: SAME for row in rows}
    [((device, direction), moved)] = moved_together(rows, sides).items()
    assert (device, direction, moved) == ("A", Direction.SLOWER, rows[:3])
    causes = [row.cause for row in with_causes(rows, sides) if row.cause]
    assert causes == [Cause.ENVIRONMENT] * 3 + [Cause.NOISE]


def test_series_that_did_not_move_together_are_noise():
    for verdicts in [
        (SLOW, SLOW, FLAT, FLAT, FLAT),  # not most of them
        (SLOW, SLOW, SLOW, FLAT, FLAT, FLAT),  # half is not most
        (SLOW, SLOW, FAST, FAST, FLAT),  # in different directions
        (SLOW, SLOW, SLOW, SLOW),  # too few series
        (SLOW, SLOW, SLOW, SLOW, Verdict.NEW),  # a new series neither moved nor stayed
    ]:
        rows = judgements_of(*verdicts)
        assert moved_together(rows, {row.series: SAME for row in rows}) == {}, verdicts


def test_only_times_with_unchanged_code_are_counted_as_moving_together() -> None:
    edited = judgements_of(SLOW, SLOW, SLOW, SLOW, SLOW)
    assert moved_together(edited, {row.series: EDITED for row in edited}) == {}
    errors = [judgement(f"v{place}", metric="max_error") for place in range(6)]
    assert moved_together(errors, {row.series: SAME for row in errors}) == {}


def test_an_edited_kernel_is_not_excused_by_its_gpu() -> None:
    rows = [*judgements_of(SLOW, SLOW, SLOW, SLOW, SLOW), judgement("edited")]
    sides = {row.series: SAME for row in rows[:-1]} | {rows[-1].series: EDITED}
    assert with_causes(rows, sides)[-1].cause is Cause.UNCONFIRMED


# --- the clock -------------------------------------------------------------------------------------------------------


def replicas(level: float, *spread: float) -> list[list[float]]:
    return [[level * (1 + offset)] for offset in spread or (-0.0005, 0.0, 0.0005)]


def timed(ratio: float, verdict: Verdict = Verdict.REGRESSION) -> Judgement:
    return replace(judgement("tiled", verdict), ratio=ratio)


def test_a_case_with_as_many_cycles_as_before_is_slower_because_of_its_clock() -> None:
    cycles = compare(replicas(198_000), replicas(198_100))
    row = timed(1.048)
    [judged] = with_causes([row], {row.series: SAME}, {row.series: cycles})
    assert judged.cause is Cause.ENVIRONMENT
    assert judged.reason.endswith(
        "the code is the same on both sides, and it took as many cycles as before, at a clock 4.5 % slower"
    )
    assert clock_evidence(timed(0.954, Verdict.IMPROVEMENT), cycles).endswith("at a clock 4.9 % faster")


def test_the_clock_is_not_blamed_if_the_cycles_moved():
    for time, after in [
        (1.048, replicas(198_000 * 1.048)),  # a case that waits for a slower memory: the clock did not change
        (1.048, replicas(198_000 * 1.03)),  # it takes more cycles as well
        (1.048, replicas(198_000 * 1.03, -0.05, 0.0, 0.05)),  # it seems to, and noise could be why
        (1.012, replicas(198_000 * 1.009)),  # within the threshold, but most of the change
        (1.048, replicas(198_000 * 0.95)),  # fewer cycles at an even slower clock: no simple explanation
    ]:
        cycles = compare(replicas(198_000), after)
        assert clock_evidence(timed(time), cycles) == "", (time, after)
        row = timed(time)
        assert with_causes([row], {row.series: SAME}, {row.series: cycles})[0].cause is Cause.NOISE, (time, after)


def test_the_clock_does_not_clear_different_code_and_is_mentioned() -> None:
    row = timed(1.048)
    [judged] = with_causes([row], {row.series: EDITED}, {row.series: compare(replicas(198_000), replicas(198_100))})
    assert judged.cause is Cause.UNCONFIRMED
    assert judged.reason == "beyond the threshold; it took as many cycles as before, at a clock 4.5 % slower"


def test_there_is_no_clock_evidence_without_a_move_or_without_cycles() -> None:
    cycles = compare(replicas(198_000), replicas(198_000))
    assert clock_evidence(timed(1.048, Verdict.INCONCLUSIVE), cycles) == ""
    assert clock_evidence(timed(1.048), None) == ""
    assert clock_evidence(replace(timed(1.048), ratio=None), cycles) == ""


def test_slower_code_is_blamed_on_the_clock_no_more_often_than_alpha() -> None:
    rng = np.random.default_rng(1)

    def share_blamed_on_clock(slower: float, clock: float, times: int = 100) -> float:
        """Return how often a case is blamed on its clock, with processes that differ by 0.3 %."""
        blamed = 0
        for _ in range(times):
            base, now = (np.exp(rng.normal(0, 0.003, 3)) for _ in range(2))
            time = compare([[seconds] for seconds in base], [[seconds * slower / clock] for seconds in now])
            cycles = compare([[seconds] for seconds in base], [[seconds * slower] for seconds in now])
            blamed += bool(clock_evidence(timed(time.ratio, time.verdict), cycles))
        return blamed / times

    assert share_blamed_on_clock(1.03, 1.0) <= 0.01
    assert share_blamed_on_clock(1.0, 0.95) >= 0.95
