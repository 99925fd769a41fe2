"""A GPU against the other GPUs of its model."""

from statistics import median

import numpy as np
import pytest

from perfsvc.judge import (
    AGREEING_NIGHTS,
    RECOVERED_NIGHTS,
    SIBLING_NIGHTS,
    is_as_fast_as_siblings,
    is_slower_than_siblings,
    ratio_to_siblings,
    sibling_threshold,
)

NONE = float("nan")
SIBLINGS = 3
SLOWER, USUAL = 1 + 2 * sibling_threshold(SIBLINGS), 1.0
BETWEEN = 1 + 0.9 * sibling_threshold(SIBLINGS)


def test_the_ratio_is_the_median_over_the_cases_of_the_ratio_to_the_median_sibling():
    random = np.random.default_rng(5)
    own, siblings = random.uniform(1, 2, 9), random.uniform(1, 2, (4, 9))
    own[2], siblings[1, 3], siblings[:, 4] = NONE, NONE, NONE
    ratios = []
    for case in range(9):
        others = [row[case] for row in siblings.tolist() if row[case] == row[case]]
        if own[case] == own[case] and others:
            ratios.append(own[case] / median(others))
    found = ratio_to_siblings(own, siblings)
    assert found.ratio == pytest.approx(median(ratios))
    assert (found.cases, found.siblings) == (7, 4)
    assert found.low == pytest.approx(sorted(ratios)[1] / 2 + sorted(ratios)[2] / 2)
    assert found.low <= found.ratio <= found.high


def test_without_a_shared_case_there_is_no_ratio_and_a_sibling_does_not_count():
    found = ratio_to_siblings(np.array([2.0, NONE]), np.array([[1.0, 1.0], [NONE, 1.0]]))
    assert (found.ratio, found.cases, found.siblings) == (2.0, 1, 1)
    for own, siblings in [
        ([1.0], np.empty((0, 1))),
        ([], np.empty((2, 0))),
        ([NONE, 1.0], [[1.0, NONE]]),
        ([0.0], [[1.0]]),
    ]:
        assert ratio_to_siblings(np.array(own), np.array(siblings)) is None, (own, siblings)


def test_several_nights_and_the_newest_one_have_to_agree():
    cases = [
        ([SLOWER] * AGREEING_NIGHTS, True),
        ([SLOWER] * (AGREEING_NIGHTS - 1), False),
        ([SLOWER, USUAL, SLOWER, USUAL, SLOWER], True),
        ([USUAL, *[SLOWER] * (SIBLING_NIGHTS - 1)], False),
        ([SLOWER, *[USUAL] * (SIBLING_NIGHTS - 1), SLOWER, SLOWER], False),
        ([BETWEEN] * SIBLING_NIGHTS, False),
        ([], False),
    ]
    assert [is_slower_than_siblings([(ratio, SIBLINGS) for ratio in ratios]) for ratios, _ in cases] == [
        slower for *_, slower in cases
    ]


def test_the_newest_nights_have_to_be_well_within_the_threshold_to_be_as_fast_again():
    cases = [
        ([USUAL] * RECOVERED_NIGHTS, True),
        ([USUAL] * (RECOVERED_NIGHTS - 1), False),
        ([USUAL, SLOWER, USUAL], False),
        ([USUAL, BETWEEN], False),
        ([*[USUAL] * RECOVERED_NIGHTS, *[SLOWER] * SIBLING_NIGHTS], True),
        ([], False),
    ]
    assert [is_as_fast_as_siblings([(ratio, SIBLINGS) for ratio in ratios]) for ratios, _ in cases] == [
        fast for *_, fast in cases
    ]


def test_fewer_siblings_need_a_larger_difference():
    assert sibling_threshold(1) > sibling_threshold(2) > sibling_threshold(7) > 0.03


def test_the_interval_holds_the_true_ratio_about_as_often_as_it_says():
    random, held = np.random.default_rng(3), 0
    for _ in range(400):
        own = 1.05 * np.exp(0.02 * random.standard_normal(41))
        low, high = ratio_to_siblings(own, np.ones((2, 41))).interval
        held += low <= 1.05 <= high
    assert 0.92 <= held / 400 <= 0.99


@pytest.mark.slow
def test_gpus_that_differ_as_boards_do_are_rarely_found_over_nights_and_one_that_lags_often():
    def found(gpus, lag, fleets=300, nights=30):
        random, count = np.random.default_rng(11), 0
        for _ in range(fleets):
            boards = np.exp(0.01 * random.standard_normal(gpus)) * np.array([lag] + [1] * (gpus - 1))
            speeds = boards * np.exp(0.003 * random.standard_normal((nights, gpus)))
            newest_first = [(ratio, gpus - 1) for ratio in (speeds[:, 0] / np.median(speeds[:, 1:], axis=1))[::-1]]
            count += any(is_slower_than_siblings(newest_first[at:]) for at in range(nights))
        return count / fleets

    for gpus in (2, 4, 8):
        assert found(gpus, 1.0) <= 0.015, gpus
        assert found(gpus, 1.05) >= (0.65 if gpus == 2 else 0.85), gpus
        assert found(gpus, 1.08) >= 0.97, gpus
