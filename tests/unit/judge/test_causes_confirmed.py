"""The cause of a suspect that was measured again, case by case and by simulation."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsvc import judge
from perfsvc.judge import Comparison
from perfsvc.model import Cause, Direction, Verdict

SLOWER, FASTER = Direction.SLOWER, Direction.FASTER


def comparison(ratio, verdict):
    return Comparison(ratio, ratio, ratio, verdict, "")


REGRESSED, IMPROVED = comparison(1.05, Verdict.REGRESSION), comparison(0.95, Verdict.IMPROVEMENT)
EQUAL, OPEN = comparison(1.0, Verdict.UNCHANGED), comparison(1.04, Verdict.INCONCLUSIVE)
SMALL = comparison(1.02, Verdict.INCONCLUSIVE)


def test_the_cause_follows_from_both_sides_and_the_stored_level():
    cases = [
        (REGRESSED, EQUAL, SLOWER, False, Cause.KERNEL),
        (REGRESSED, REGRESSED, SLOWER, False, Cause.KERNEL),  # the GPU is slower too, and the code even more
        (REGRESSED, None, SLOWER, False, Cause.KERNEL),
        (IMPROVED, EQUAL, FASTER, False, Cause.KERNEL),
        (REGRESSED, EQUAL, SLOWER, True, Cause.NOISE),
        (REGRESSED, REGRESSED, SLOWER, True, Cause.ENVIRONMENT),
        (EQUAL, REGRESSED, SLOWER, False, Cause.ENVIRONMENT),
        (SMALL, REGRESSED, SLOWER, False, Cause.ENVIRONMENT),
        (EQUAL, IMPROVED, FASTER, False, Cause.ENVIRONMENT),
        (EQUAL, EQUAL, SLOWER, False, Cause.NOISE),
        (EQUAL, IMPROVED, SLOWER, False, Cause.NOISE),
        (EQUAL, None, SLOWER, False, Cause.NOISE),
        (IMPROVED, EQUAL, SLOWER, False, Cause.NOISE),
        (REGRESSED, EQUAL, FASTER, False, Cause.NOISE),
        (OPEN, EQUAL, SLOWER, False, Cause.UNCONFIRMED),
        (OPEN, REGRESSED, SLOWER, False, Cause.UNCONFIRMED),
        (OPEN, EQUAL, SLOWER, True, Cause.NOISE),
        (comparison(0.0, Verdict.INCONCLUSIVE), None, SLOWER, False, Cause.NOISE),  # an error that is gone
    ]
    assert [
        judge.cause_of(pairs, drift, direction=direction, threshold=0.03, same_code=same_code)[0]
        for pairs, drift, direction, same_code, _ in cases
    ] == [cause for *_, cause in cases]


def test_the_reason_names_what_moved_and_another_metric_is_higher_and_not_slower():
    how = {"direction": SLOWER, "threshold": 0.03, "same_code": False}
    _, why = judge.cause_of(EQUAL, REGRESSED, **how)
    assert "but the baseline's code is now 5.0 % slower than its stored level" in why
    how["metric"] = "energy_j"
    assert judge.cause_of(REGRESSED, None, **how)[1] == (
        "measured in A/B pairs, its code's energy_j is 5.0 % higher than the baseline's"
    )
    assert judge.cause_of(EQUAL, REGRESSED, **how)[1] == (
        "beside the baseline's code its energy_j is the same, "
        "but the baseline's energy_j is now 5.0 % higher than its stored level"
    )


def between(low, high, verdict=Verdict.UNCHANGED):
    return Comparison((low * high) ** 0.5, low, high, verdict, "")


def test_a_significant_difference_below_the_threshold_is_not_noise():
    for pairs, direction, cause in [
        (between(1.04, 1.06), SLOWER, Cause.UNCONFIRMED),
        (between(1.04, 1.12, Verdict.INCONCLUSIVE), SLOWER, Cause.UNCONFIRMED),
        (between(0.94, 0.96), FASTER, Cause.UNCONFIRMED),
        (between(0.99, 1.06), SLOWER, Cause.NOISE),
        (between(1.002, 1.009), SLOWER, Cause.NOISE),
        (between(0.94, 0.96), SLOWER, Cause.NOISE),
        (between(1.04, 1.06), FASTER, Cause.NOISE),
        (between(1.12, 1.14, Verdict.REGRESSION), SLOWER, Cause.KERNEL),
    ]:
        for drift in [None, EQUAL]:
            options = {"direction": direction, "threshold": 0.1, "usual": 0.01, "same_code": False}
            assert judge.cause_of(pairs, drift, **options)[0] is cause, (pairs, direction, cause, drift)
    assert judge.cause_of(between(1.04, 1.06), REGRESSED, **options | {"direction": SLOWER}) == (
        Cause.UNCONFIRMED,
        "measured in A/B pairs, it is 5.0 % slower, which is below the threshold",
    )


def test_pairs_are_added_only_while_the_estimate_is_still_a_suspects():
    cases = [
        (REGRESSED, SLOWER, True),
        (EQUAL, SLOWER, True),
        (SMALL, SLOWER, True),
        (OPEN, SLOWER, False),
        (OPEN, FASTER, True),
        (comparison(0.96, Verdict.INCONCLUSIVE), FASTER, False),
        (comparison(0.96, Verdict.INCONCLUSIVE), SLOWER, True),
    ]
    assert [judge.is_decided(pairs, direction, 0.03) for pairs, direction, _ in cases] == [
        enough for *_, enough in cases
    ]


def causes(rng, times, *, slower=0.0, device=0.0, between=0.01, threshold=0.03):
    """Return the shares of causes of many suspects, each measured again until it is decided."""
    seen = []
    for _ in range(times):
        stored, old, new = (
            np.exp(rng.normal(change, between, (count, 1))) * np.exp(rng.normal(0, 0.003, (count, 20)))
            for change, count in ((0.0, 3), (np.log1p(device), 12), (np.log1p(device) + np.log1p(slower), 12))
        )
        for pairs in judge.LOOKS:
            sides = list(old[:pairs]), list(new[:pairs])
            compared = judge.compare(*sides, threshold=threshold, alpha=judge.ALPHA / len(judge.LOOKS))
            if judge.is_decided(compared, SLOWER, threshold):
                break
        drift = judge.compare(list(stored), sides[0], threshold=threshold)
        cause, _ = judge.cause_of(compared, drift, direction=SLOWER, threshold=threshold, same_code=False)
        seen.append(cause)
    return {cause: seen.count(cause) / times for cause in Cause}


def test_equal_code_is_rarely_blamed_slower_code_is_and_a_slow_gpu_is_not():
    """A small version of tests/benchmarks/judge_pairs.py."""
    rng = np.random.default_rng(1)
    assert causes(rng, 150, between=0.03)[Cause.KERNEL] <= 0.01
    assert causes(rng, 60, slower=0.08)[Cause.KERNEL] >= 0.95
    slow_device = causes(rng, 60, device=0.08)
    assert slow_device[Cause.KERNEL] <= 0.01
    assert slow_device[Cause.ENVIRONMENT] >= 0.9


# --- bisection -------------------------------------------------------------------------------------------------------


@given(st.floats(1.0001, 100))
def test_both_levels_are_equally_far_from_the_midpoint_and_slower_and_faster_have_mirrored_ones(ratio):
    limit = judge.midpoint(ratio)
    assert 1 < limit < ratio
    assert math.log(limit) == pytest.approx(math.log(ratio / limit))
    assert judge.midpoint(1 / ratio) == pytest.approx(1 / limit)


def test_the_whole_interval_decides_the_side():
    cases = [
        (1.04, 1.06, 1.03, True),
        (0.99, 1.01, 1.03, False),
        (1.02, 1.04, 1.03, None),
        (None, None, 1.03, None),
        (0.94, 0.96, 1 / 1.03, True),
        (0.99, 1.01, 1 / 1.03, False),
        (0.96, 0.99, 1 / 1.03, None),
        (1.05, 1.07, 1 / 1.03, False),
    ]
    assert [judge.is_beyond(low, high, limit) for low, high, limit, _ in cases] == [moved for *_, moved in cases]


# --- another GPU ------------------------------------------------------------------------------------------------------


def answer(change, half):
    """Return a comparison with a ratio of ``1 + change``, and an interval of ``half`` to each side."""
    return Comparison(1 + change, (1 + change) * math.exp(-half), (1 + change) * math.exp(half), Verdict.REGRESSION, "")


def test_another_gpu_agrees_if_one_pair_shows_a_similar_change():
    cases = [
        (0.05, 0.001, 1.05, True),
        (0.05, 0.001, 1.059, True),  # within the threshold
        (0.05, 0.001, 1.065, False),
        (0.50, 0.001, 1.45, True),  # a small share of the change
        (0.50, 0.001, 1.30, False),
        (0.05, 0.01, 1.031, True),  # within the noise of one pair
        (0.05, 0.01, 1.025, False),
        (0.05, 0.1, 0.99, False),  # the other direction
        (0.05, 0.1, 1.0, False),
        (-0.05, 0.001, 0.95, True),
        (-0.05, 0.001, 1.05, False),
        (0.05, 0.001, 0.0, False),
        (0.05, 0.001, math.inf, False),
    ]
    assert [judge.agrees(answer(change, half), 3, ratio, threshold=0.01) for change, half, ratio, _ in cases] == [
        agreed for *_, agreed in cases
    ]
    assert not judge.agrees(Comparison(1.05, None, None, Verdict.REGRESSION, ""), 3, 1.05, threshold=0.01)


def test_one_pair_of_an_equal_gpu_rarely_disagrees():
    for pairs in [3, 5]:
        for noise in [0.001, 0.003]:
            rng = np.random.default_rng(5)
            disagreed = 0
            for _ in range(80):
                old = [rng.normal(0, noise, 1) for _ in range(pairs + 1)]
                new = [rng.normal(math.log(1.05), noise, 1) for _ in range(pairs + 1)]
                old, new = [np.exp(times) for times in old], [np.exp(times) for times in new]
                first = judge.compare(old[:pairs], new[:pairs], alpha=judge.ALPHA / 4)
                disagreed += not judge.agrees(first, pairs, float(new[-1][0] / old[-1][0]), threshold=0.01)
            assert disagreed <= 1, (pairs, noise)
