"""A GPU against the other GPUs of its model."""

from statistics import median

import numpy as np
import pytest

from perfsvc.judge import AGREEING_NIGHTS, SIBLING_NIGHTS, SIBLING_THRESHOLD, is_slower_than_siblings, ratio_to_siblings

NONE = float("nan")
SLOWER, USUAL = 1 + 2 * SIBLING_THRESHOLD, 1.0


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


def test_a_sibling_without_a_shared_case_does_not_count():
    found = ratio_to_siblings(np.array([2.0, NONE]), np.array([[1.0, 1.0], [NONE, 1.0]]))
    assert (found.ratio, found.cases, found.siblings) == (2.0, 1, 1)


@pytest.mark.parametrize(
    ("own", "siblings"),
    [
        ([1.0], np.empty((0, 1))),
        ([], np.empty((2, 0))),
        ([NONE, 1.0], [[1.0, NONE]]),
        ([0.0], [[1.0]]),
    ],
)
def test_without_a_shared_case_there_is_no_ratio(own, siblings):
    assert ratio_to_siblings(np.array(own), np.array(siblings)) is None


@pytest.mark.parametrize(
    ("ratios", "slower"),
    [
        ([SLOWER] * AGREEING_NIGHTS, True),
        ([SLOWER] * (AGREEING_NIGHTS - 1), False),
        ([SLOWER, USUAL, SLOWER, USUAL, SLOWER], True),
        ([USUAL, *[SLOWER] * (SIBLING_NIGHTS - 1)], False),
        ([SLOWER, *[USUAL] * (SIBLING_NIGHTS - 1), SLOWER, SLOWER], False),
        ([1 + SIBLING_THRESHOLD] * SIBLING_NIGHTS, False),
        ([], False),
    ],
)
def test_several_nights_and_the_newest_one_have_to_agree(ratios, slower):
    assert is_slower_than_siblings(ratios) is slower
