"""Smaller versions of what tests/benchmarks/detectors.py shows, with a margin for their size."""

import numpy as np
import pytest
from numpy.typing import NDArray

from perfsvc.judge import detect_changes_together
from perfsvc.judge.changes.detect import ALERT_RATE, detect_changes_in_each

Floats = NDArray[np.float64]

SERIES = 300
LEARNED = 20


def normal(generator: np.random.Generator, series: int, nights: int) -> Floats:
    return 1 + 0.01 * generator.standard_normal((series, nights))


def two_states(generator: np.random.Generator, series: int, nights: int) -> Floats:
    slow = generator.random((series, nights)) < 0.3
    return 1 + 0.05 * slow + 0.005 * generator.standard_normal((series, nights))


def spiked(generator: np.random.Generator, series: int, nights: int) -> Floats:
    return normal(generator, series, nights) * np.where(generator.random((series, nights)) < 0.01, 1.1, 1.0)


@pytest.mark.parametrize(("flat", "limit"), [(normal, 0.2), (two_states, 0.2), (spiked, 0.4)])
def test_flat_series_raise_next_to_nothing(flat, limit: float) -> None:
    """Twice the rate that is claimed: 54,000 nights have few alerts, whose number varies."""
    many = flat(np.random.default_rng(1), SERIES, 200)
    alerts = sum(map(len, detect_changes_in_each(many)))
    assert 1000 * alerts / (SERIES * (200 - LEARNED)) <= limit


@pytest.mark.parametrize(("height", "limit"), [(1, 25), (2, 6), (5, 2)])
def test_steps_are_found_within_the_nights_that_are_claimed(height: float, limit: float) -> None:
    many = normal(np.random.default_rng(2), SERIES, 150)
    many[:, 100:] += 0.01 * height
    delays = []
    for alerts in detect_changes_in_each(many):
        after = [alert.raised for alert in alerts if alert.raised >= 100]
        delays.append(after[0] - 99 if after else np.inf)
    assert np.median(delays) <= limit


def test_few_of_many_discoveries_are_false_and_most_shifts_are_found_on_their_second_night() -> None:
    generator = np.random.default_rng(3)
    shares, found = [], []
    for _ in range(15):
        many = normal(generator, 1010, 102)
        many[:10, 100:] += 0.05
        alerts = detect_changes_together(many)
        true = sum(any(alert.raised >= 100 for alert in one) for one in alerts[:10])
        false = sum(map(len, alerts[10:]))
        shares.append(false / max(true + false, 1))
        found.append(true / 10)
    assert np.mean(shares) <= 0.05
    assert np.mean(found) >= 0.9


def test_the_rate_of_flat_series_is_the_one_that_discoveries_are_told_by() -> None:
    many = normal(np.random.default_rng(4), SERIES, 200)
    raised = sum(map(bool, detect_changes_in_each(many)))
    assert raised <= 3 * ALERT_RATE * SERIES * 180 + 3
