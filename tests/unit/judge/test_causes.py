"""Why a series moved, as far as both sides tell it without measuring again."""

from dataclasses import replace

import numpy as np
import pytest

from perfsvc.judge import SameOnBothSides, compare, moved_together, with_causes
from perfsvc.judge.causes import clock_evidence
from perfsvc.model import TIME, Case, Cause, Direction, Judgement, Series, Verdict

SAME = SameOnBothSides(code=True, source=True, toolkit=True, device=True)
EDITED = SameOnBothSides(code=False, source=False, toolkit=True, device=True)
RECOMPILED = SameOnBothSides(code=False, source=True, toolkit=False, device=True)


def judgement(
    variant: str, verdict: Verdict = Verdict.REGRESSION, *, device: str = "A", metric: str = TIME
) -> Judgement:
    return Judgement(Series(Case("transpose", variant), device, "H100", metric), verdict, "beyond the threshold")


def cause(sides: SameOnBothSides | None, verdict: Verdict = Verdict.REGRESSION) -> Cause | None:
    one = judgement("tiled", verdict)
    [found] = with_causes([one], {one.series: sides} if sides else {})
    return found.cause


def test_the_same_code_on_both_sides_is_never_at_fault() -> None:
    assert cause(SAME) is Cause.NOISE
    assert cause(SAME, Verdict.IMPROVEMENT) is Cause.NOISE


def test_the_same_code_beside_another_driver_or_power_limit_is_the_environments() -> None:
    assert cause(SameOnBothSides(code=True, source=True, toolkit=True, device=False)) is Cause.ENVIRONMENT


def test_other_code_of_an_equal_source_by_another_compiler_is_the_toolchains() -> None:
    assert cause(RECOMPILED) is Cause.TOOLCHAIN


@pytest.mark.parametrize("sides", [EDITED, SameOnBothSides(code=False, source=True, toolkit=True, device=True), None])
def test_whatever_else_moved_is_unconfirmed(sides: SameOnBothSides | None) -> None:
    assert cause(sides) is Cause.UNCONFIRMED


@pytest.mark.parametrize("verdict", sorted(set(Verdict) - {Verdict.REGRESSION, Verdict.IMPROVEMENT}))
def test_what_did_not_move_has_no_cause(verdict: Verdict) -> None:
    assert cause(SAME, verdict) is None


def test_the_reason_says_what_tells_the_cause_and_keeps_what_it_said() -> None:
    one = judgement("tiled")
    [found] = with_causes([one], {one.series: SAME})
    assert found.reason == "beyond the threshold; the code is the same on both sides"
    assert with_causes([one], {})[0].reason == one.reason


def night(*verdicts: Verdict, device: str = "A") -> list[Judgement]:
    return [judgement(f"v{place}", verdict, device=device) for place, verdict in enumerate(verdicts)]


SLOW, FLAT, FAST = Verdict.REGRESSION, Verdict.UNCHANGED, Verdict.IMPROVEMENT


def test_a_board_whose_cases_move_at_once_is_the_environments_and_another_board_is_not() -> None:
    every = [*night(SLOW, SLOW, SLOW, FLAT, FLAT), *night(SLOW, FLAT, FLAT, FLAT, FLAT, device="B")]
    sides = {one.series: SAME for one in every}
    [((device, direction), moved)] = moved_together(every, sides).items()
    assert (device, direction, moved) == ("A", Direction.SLOWER, every[:3])
    causes = [one.cause for one in with_causes(every, sides) if one.cause]
    assert causes == [Cause.ENVIRONMENT] * 3 + [Cause.NOISE]


@pytest.mark.parametrize(
    "verdicts",
    [
        (SLOW, SLOW, FLAT, FLAT, FLAT),  # not most of them
        (SLOW, SLOW, SLOW, FLAT, FLAT, FLAT),  # half is not most
        (SLOW, SLOW, FAST, FAST, FLAT),  # not one way
        (SLOW, SLOW, SLOW, SLOW),  # too few to say what most do
        (SLOW, SLOW, SLOW, SLOW, Verdict.NEW),  # what is new has not moved, nor stayed
    ],
)
def test_what_did_not_move_at_once_is_noise(verdicts: tuple[Verdict, ...]) -> None:
    every = night(*verdicts)
    assert moved_together(every, {one.series: SAME for one in every}) == {}


def test_only_times_with_unchanged_code_tell_of_the_board() -> None:
    edited = night(SLOW, SLOW, SLOW, SLOW, SLOW)
    assert moved_together(edited, {one.series: EDITED for one in edited}) == {}
    errors = [judgement(f"v{place}", metric="max_error") for place in range(6)]
    assert moved_together(errors, {one.series: SAME for one in errors}) == {}


def test_an_edited_kernel_is_not_excused_by_the_board() -> None:
    every = [*night(SLOW, SLOW, SLOW, SLOW, SLOW), judgement("edited")]
    sides = {one.series: SAME for one in every[:-1]} | {every[-1].series: EDITED}
    assert with_causes(every, sides)[-1].cause is Cause.UNCONFIRMED


# --- the clock -------------------------------------------------------------------------------------------------------


def replicas(level: float, *spread: float) -> list[list[float]]:
    return [[level * (1 + one)] for one in spread or (-0.0005, 0.0, 0.0005)]


def timed(ratio: float, verdict: Verdict = Verdict.REGRESSION) -> Judgement:
    return replace(judgement("tiled", verdict), ratio=ratio)


def test_a_case_of_as_many_cycles_is_slower_by_its_clock() -> None:
    cycles = compare(replicas(198_000), replicas(198_100))
    one = timed(1.048)
    [found] = with_causes([one], {one.series: SAME}, {one.series: cycles})
    assert found.cause is Cause.ENVIRONMENT
    assert found.reason.endswith(
        "the code is the same on both sides, and it took as many cycles as before, at a clock 4.5 % slower"
    )
    assert clock_evidence(timed(0.954, Verdict.IMPROVEMENT), cycles).endswith("at a clock 4.9 % faster")


@pytest.mark.parametrize(
    ("time", "after"),
    [
        (1.048, replicas(198_000 * 1.048)),  # as a case that waits for a slower memory: the clock is what it was
        (1.048, replicas(198_000 * 1.03)),  # it takes more cycles as well
        (1.048, replicas(198_000 * 1.03, -0.05, 0.0, 0.05)),  # it seems to, and noise could be why
        (1.012, replicas(198_000 * 1.009)),  # within the threshold, but most of the change
        (1.048, replicas(198_000 * 0.95)),  # fewer at a clock slower still: this tells of nothing simple
    ],
)
def test_the_clock_is_not_said_to_be_why_where_cycles_moved(time: float, after: list[list[float]]) -> None:
    cycles = compare(replicas(198_000), after)
    assert clock_evidence(timed(time), cycles) == ""
    one = timed(time)
    assert with_causes([one], {one.series: SAME}, {one.series: cycles})[0].cause is Cause.NOISE


def test_the_clock_acquits_no_other_code_and_is_told_of() -> None:
    one = timed(1.048)
    [found] = with_causes([one], {one.series: EDITED}, {one.series: compare(replicas(198_000), replicas(198_100))})
    assert found.cause is Cause.UNCONFIRMED
    assert found.reason == "beyond the threshold; it took as many cycles as before, at a clock 4.5 % slower"


def test_what_did_not_move_or_counted_no_cycles_is_not_spoken_for() -> None:
    cycles = compare(replicas(198_000), replicas(198_000))
    assert clock_evidence(timed(1.048, Verdict.INCONCLUSIVE), cycles) == ""
    assert clock_evidence(timed(1.048), None) == ""
    assert clock_evidence(replace(timed(1.048), ratio=None), cycles) == ""


def test_code_that_is_slower_is_laid_to_the_clock_no_more_often_than_chance_allows() -> None:
    rng = np.random.default_rng(1)

    def laid(slower: float, clock: float, times: int = 300) -> float:
        """How often a case is said to be slower by its clock, of processes that differ by 0.3 %."""
        said = 0
        for _ in range(times):
            base, now = (np.exp(rng.normal(0, 0.003, 3)) for _ in range(2))
            time = compare([[one] for one in base], [[one * slower / clock] for one in now])
            cycles = compare([[one] for one in base], [[one * slower] for one in now])
            said += bool(clock_evidence(timed(time.ratio, time.verdict), cycles))
        return said / times

    assert laid(1.03, 1.0) <= 0.01
    assert laid(1.0, 0.95) >= 0.95
