"""What measuring a suspect again says, case by case and by simulation."""

import numpy as np
import pytest

from perfsvc import judge
from perfsvc.judge import Comparison
from perfsvc.model import Cause, Direction, Verdict

SLOWER, FASTER = Direction.SLOWER, Direction.FASTER


def found(ratio, verdict):
    return Comparison(ratio, ratio, ratio, verdict, "")


REGRESSED, IMPROVED = found(1.05, Verdict.REGRESSION), found(0.95, Verdict.IMPROVEMENT)
EQUAL, OPEN = found(1.0, Verdict.UNCHANGED), found(1.04, Verdict.INCONCLUSIVE)
SMALL = found(1.02, Verdict.INCONCLUSIVE)


@pytest.mark.parametrize(
    ("pairs", "drift", "direction", "same_code", "cause"),
    [
        (REGRESSED, EQUAL, SLOWER, False, Cause.KERNEL),
        (REGRESSED, REGRESSED, SLOWER, False, Cause.KERNEL),  # the GPU is slow too, and the code beside it still more
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
        (found(0.0, Verdict.INCONCLUSIVE), None, SLOWER, False, Cause.NOISE),  # an error that is none any more
    ],
)
def test_the_cause_follows_from_both_sides_and_the_stored_level(pairs, drift, direction, same_code, cause):
    assert judge.cause_of(pairs, drift, direction=direction, threshold=0.03, same_code=same_code)[0] is cause


def test_the_reason_says_what_moved():
    _, why = judge.cause_of(EQUAL, REGRESSED, direction=SLOWER, threshold=0.03, same_code=False)
    assert "which is itself now 5.0 % slower than its stored level" in why


def test_another_metric_is_higher_and_not_slower():
    how = {"direction": SLOWER, "threshold": 0.03, "same_code": False, "metric": "energy_j"}
    assert judge.cause_of(REGRESSED, None, **how)[1] == (
        "measured in turn, its code's energy_j is 5.0 % higher than the baseline's"
    )
    assert judge.cause_of(EQUAL, REGRESSED, **how)[1] == (
        "beside the baseline's code its energy_j is the same, "
        "and the baseline's energy_j is now 5.0 % higher than its stored level"
    )


def between(low, high, verdict=Verdict.UNCHANGED):
    return Comparison((low * high) ** 0.5, low, high, verdict, "")


@pytest.mark.parametrize(
    ("pairs", "direction", "cause"),
    [
        (between(1.04, 1.06), SLOWER, Cause.UNCONFIRMED),
        (between(1.04, 1.12, Verdict.INCONCLUSIVE), SLOWER, Cause.UNCONFIRMED),
        (between(0.94, 0.96), FASTER, Cause.UNCONFIRMED),
        (between(0.99, 1.06), SLOWER, Cause.NOISE),
        (between(1.002, 1.009), SLOWER, Cause.NOISE),
        (between(0.94, 0.96), SLOWER, Cause.NOISE),
        (between(1.04, 1.06), FASTER, Cause.NOISE),
        (between(1.12, 1.14, Verdict.REGRESSION), SLOWER, Cause.KERNEL),
    ],
)
@pytest.mark.parametrize("drift", [None, EQUAL])
def test_a_real_difference_below_what_was_asked_for_is_not_noise(pairs, drift, direction, cause):
    asked = {"direction": direction, "threshold": 0.1, "usual": 0.01, "same_code": False}
    assert judge.cause_of(pairs, drift, **asked)[0] is cause


def test_a_real_difference_below_what_was_asked_for_says_so():
    asked = {"direction": SLOWER, "threshold": 0.1, "usual": 0.01, "same_code": False}
    assert judge.cause_of(between(1.04, 1.06), REGRESSED, **asked) == (
        Cause.UNCONFIRMED,
        "measured in turn it is 5.0 % slower, which is below the threshold",
    )


@pytest.mark.parametrize(
    ("pairs", "direction", "enough"),
    [
        (REGRESSED, SLOWER, True),
        (EQUAL, SLOWER, True),
        (SMALL, SLOWER, True),
        (OPEN, SLOWER, False),
        (OPEN, FASTER, True),
        (found(0.96, Verdict.INCONCLUSIVE), FASTER, False),
        (found(0.96, Verdict.INCONCLUSIVE), SLOWER, True),
    ],
)
def test_pairs_are_added_only_where_the_estimate_is_still_a_suspects(pairs, direction, enough):
    assert judge.is_decided(pairs, direction, 0.03) is enough


def causes(rng, times, *, slower=0.0, board=0.0, between=0.01, threshold=0.03):
    """The causes of many suspects, each measured again from its first look on until it is settled."""
    seen = []
    for _ in range(times):
        stored, old, new = (
            np.exp(rng.normal(change, between, (count, 1))) * np.exp(rng.normal(0, 0.003, (count, 20)))
            for change, count in ((0.0, 3), (np.log1p(board), 12), (np.log1p(board) + np.log1p(slower), 12))
        )
        for look, pairs in enumerate(judge.LOOKS, 1):
            sides = list(old[:pairs]), list(new[:pairs])
            compared = judge.compare_at_look(*sides, look=look, looks=len(judge.LOOKS), threshold=threshold)
            if judge.is_decided(compared, SLOWER, threshold):
                break
        drift = judge.compare(list(stored), sides[0], threshold=threshold)
        cause, _ = judge.cause_of(compared, drift, direction=SLOWER, threshold=threshold, same_code=False)
        seen.append(cause)
    return {cause: seen.count(cause) / times for cause in Cause}


def test_equal_code_is_blamed_no_more_often_than_alpha_over_all_looks_together():
    shares = causes(np.random.default_rng(1), 800, between=0.03)
    assert shares[Cause.KERNEL] <= 0.01


def test_slower_code_is_blamed_and_a_slow_board_is_not_the_codes():
    rng = np.random.default_rng(2)
    assert causes(rng, 200, slower=0.08)[Cause.KERNEL] >= 0.95
    slow_board = causes(rng, 200, board=0.08)
    assert slow_board[Cause.KERNEL] <= 0.01
    assert slow_board[Cause.ENVIRONMENT] >= 0.9
