"""Tests of the distributions, against SciPy."""

import math

import numpy as np
import pytest
from scipy import special

from perfsvc.distributions import coin_probabilities, normal_quantile, student_quantile, student_quantiles


def test_quantiles_of_student_agree_with_scipy():
    freedom = np.concatenate([np.geomspace(0.3, 1e7, 100), np.arange(1.0, 60.0), [9999.9, 1e4]])
    for probability in (0.6, 0.9, 0.975, 0.995, 0.9995, 1 - 1e-7):
        expected = special.stdtrit(freedom, probability)
        assert student_quantiles(freedom, probability) == pytest.approx(expected, rel=1e-11)
    assert [student_quantile(freedom, 0.5) for freedom in (1, 3, 1e6)] == [0, 0, pytest.approx(0)]


def test_no_degrees_of_freedom_have_no_quantile():
    assert math.isnan(student_quantile(0, 0.975))
    unknown = np.isnan(student_quantiles(np.array([[-1.0, 0.0], [2.0, math.nan]]), 0.9))
    assert unknown.tolist() == [[True, True], [False, True]]


def test_probabilities_of_a_coin_agree_with_scipy():
    for tosses in (1, 2, 3, 10, 1001, 10_000):
        expected = special.bdtr(np.arange((tosses + 1) // 2), tosses, 0.5)
        assert coin_probabilities(tosses) == pytest.approx(expected, rel=1e-9, abs=1e-14)


def test_quantiles_of_the_normal_distribution_agree_with_scipy():
    for probability in (1e-9, 0.025, 0.5, 0.999):
        assert normal_quantile(probability) == pytest.approx(special.ndtri(probability), rel=1e-12, abs=1e-15)
