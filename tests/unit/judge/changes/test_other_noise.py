"""The watch on histories of other kinds than those that its constants were simulated on, with what it does on them."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from perfsvc.judge.changes.detect import detect_changes_in_each
from perfsvc.model import ChangeKind

Floats = NDArray[np.float64]
Flat = Callable[[np.random.Generator, tuple[int, int]], Floats]

SERIES = 300
NIGHTS = 200
LEARNED = 20
NOISE = 0.01
TICK_S = 32e-9
BEGINS = 100


def persistent(share: float) -> Flat:
    """Each night repeats a share of what the night before was off by."""

    def make(generator: np.random.Generator, shape: tuple[int, int]) -> Floats:
        off = generator.standard_normal(shape)
        for night in range(1, shape[1]):
            off[:, night] = share * off[:, night - 1] + np.sqrt(1 - share**2) * off[:, night]
        return 1 + NOISE * off

    return make


def normal(generator: np.random.Generator, shape: tuple[int, int]) -> Floats:
    return 1 + NOISE * generator.standard_normal(shape)


def lognormal(generator: np.random.Generator, shape: tuple[int, int]) -> Floats:
    """Skewed as a time of 30 % noise is."""
    return np.exp(0.3 * generator.standard_normal(shape))


def exponential(generator: np.random.Generator, shape: tuple[int, int]) -> Floats:
    return 1 + NOISE * generator.exponential(size=shape)


def heavy(generator: np.random.Generator, shape: tuple[int, int]) -> Floats:
    """Student's with five degrees of freedom: of 1,000 nights five lie beyond 4 standard deviations."""
    return 1 + NOISE * generator.standard_t(5, size=shape) * np.sqrt(3 / 5)


def weekly(generator: np.random.Generator, shape: tuple[int, int]) -> Floats:
    """A week goes up and down by a standard deviation."""
    phase = generator.integers(7, size=(shape[0], 1))
    return normal(generator, shape) + NOISE * np.sin(2 * np.pi * (np.arange(shape[1]) + phase) / 7)


def ticking(generator: np.random.Generator, shape: tuple[int, int]) -> Floats:
    """About 8 µs with a noise of half a tick of the clock."""
    base = 8e-6 * (1 + 0.1 * generator.random((shape[0], 1)))
    return TICK_S * np.round(base * (1 + 0.002 * generator.standard_normal(shape)) / TICK_S)


def gappy(generator: np.random.Generator, shape: tuple[int, int]) -> Floats:
    """One night in five is missing."""
    return np.where(generator.random(shape) < 0.2, np.nan, normal(generator, shape))


@pytest.mark.parametrize(
    ("flat", "limit"),
    [
        (lognormal, 0.4),
        (exponential, 0.4),
        (heavy, 0.4),
        (weekly, 0.2),
        (ticking, 0.3),
        (gappy, 0.2),
        (persistent(0.1), 0.4),
        (persistent(0.3), 1.0),
        (persistent(0.5), 2.0),
    ],
    ids=["lognormal", "exponential", "heavy", "weekly", "ticking", "gappy", "persistent 10", "30", "50"],
)
def test_flat_series_of_other_kinds_raise_little(flat: Flat, limit: float) -> None:
    """About twice what docs/explanation/statistics.md says, in alerts of 1,000 nights: few nights have few alerts."""
    alerts = detect_changes_in_each(flat(np.random.default_rng(20), (SERIES, NIGHTS)))
    assert 1000 * sum(map(len, alerts)) / (SERIES * (NIGHTS - LEARNED)) <= limit


def test_nights_that_resemble_the_one_before_do_not_hide_a_step() -> None:
    many = persistent(0.3)(np.random.default_rng(21), (SERIES, NIGHTS))
    many[:, BEGINS:] += 5 * NOISE
    found = [any(BEGINS <= alert.raised < BEGINS + 5 for alert in alerts) for alerts in detect_changes_in_each(many)]
    assert np.mean(found) >= 0.95


# --- steps and drifts by their names ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nights", "noise", "trends"),
    [(15, 0.003, 0.9), (30, 0.003, 0.95), (100, 0.003, 0.95), (30, 0.01, 0.65), (60, 0.01, 0.85), (200, 0.01, 0.95)],
)
def test_a_drift_is_found_before_it_has_added_three_percent_and_named_by_five(
    nights: int, noise: float, trends: float
) -> None:
    generator = np.random.default_rng(22)
    end = BEGINS + nights * 5 // 3
    drift = 0.03 / nights * np.maximum(np.arange(end) - BEGINS + 1, 0)
    raised = detect_changes_in_each((1 + drift) * (1 + noise * generator.standard_normal((150, end))))

    def share(until: int, kinds: set[str]) -> float:
        within = range(BEGINS, until)
        return float(np.mean([any(one.raised in within and one.kind in kinds for one in alerts) for alerts in raised]))

    assert share(BEGINS + nights, {"step", "trend"}) >= 0.97
    assert share(BEGINS + nights, {"trend"}) >= trends
    assert share(end, {"trend"}) >= 0.97


@pytest.mark.parametrize(("height", "least"), [(1, 0.8), (2, 0.8), (3, 0.9), (5, 0.95)])
def test_a_step_is_first_called_one(height: float, least: float) -> None:
    many = normal(np.random.default_rng(23), (200, BEGINS + 60))
    many[:, BEGINS:] += height * NOISE
    raised = detect_changes_in_each(many)
    first = [next((alert.kind for alert in alerts if alert.raised >= BEGINS), None) for alerts in raised]
    assert np.mean([kind is ChangeKind.STEP for kind in first if kind]) >= least
