"""How often the detector is wrong and how soon it finds a change: small versions of tests/benchmarks/detectors.py."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from perfsvc.judge import detect_changes_together
from perfsvc.judge.changes.detect import ALERT_RATE, detect_changes_in_each
from perfsvc.model import ChangeKind

Floats = NDArray[np.float64]
Noise = Callable[[np.random.Generator, tuple[int, int]], Floats]

SERIES = 300
RUNS = 200
LEARNED = 20
NOISE = 0.01
TICK_S = 32e-9
CHANGED = 100
"""The run with which a change begins."""


def normal(generator: np.random.Generator, shape: tuple[int, int]) -> Floats:
    return 1 + NOISE * generator.standard_normal(shape)


def two_states(generator: np.random.Generator, shape: tuple[int, int]) -> Floats:
    slow = generator.random(shape) < 0.3
    return 1 + 0.05 * slow + 0.005 * generator.standard_normal(shape)


def spiked(generator: np.random.Generator, shape: tuple[int, int]) -> Floats:
    return normal(generator, shape) * np.where(generator.random(shape) < 0.01, 1.1, 1.0)


def lognormal(generator: np.random.Generator, shape: tuple[int, int]) -> Floats:
    """Return noise as skewed as a time of 30 % noise."""
    return np.exp(0.3 * generator.standard_normal(shape))


def exponential(generator: np.random.Generator, shape: tuple[int, int]) -> Floats:
    return 1 + NOISE * generator.exponential(size=shape)


def heavy(generator: np.random.Generator, shape: tuple[int, int]) -> Floats:
    """Return Student's noise with five degrees of freedom: 5 of 1,000 runs lie beyond 4 standard deviations."""
    return 1 + NOISE * generator.standard_t(5, size=shape) * np.sqrt(3 / 5)


def weekly(generator: np.random.Generator, shape: tuple[int, int]) -> Floats:
    """Return noise that goes up and down by a standard deviation every 7 runs."""
    phase = generator.integers(7, size=(shape[0], 1))
    return normal(generator, shape) + NOISE * np.sin(2 * np.pi * (np.arange(shape[1]) + phase) / 7)


def ticking(generator: np.random.Generator, shape: tuple[int, int]) -> Floats:
    """Return times of about 8 µs with a noise of half a tick of the clock."""
    base = 8e-6 * (1 + 0.1 * generator.random((shape[0], 1)))
    return TICK_S * np.round(base * (1 + 0.002 * generator.standard_normal(shape)) / TICK_S)


def gappy(generator: np.random.Generator, shape: tuple[int, int]) -> Floats:
    """Return noise in which every fifth run is missing."""
    return np.where(generator.random(shape) < 0.2, np.nan, normal(generator, shape))


def persistent(share: float) -> Noise:
    """Return noise in which each run repeats a share of the deviation of the run before."""

    def make(generator: np.random.Generator, shape: tuple[int, int]) -> Floats:
        deviations = generator.standard_normal(shape)
        for run in range(1, shape[1]):
            deviations[:, run] = share * deviations[:, run - 1] + np.sqrt(1 - share**2) * deviations[:, run]
        return 1 + NOISE * deviations

    return make


def alerts_per_1000(noise: Noise, seed: int) -> float:
    alerts = detect_changes_in_each(noise(np.random.default_rng(seed), (SERIES, RUNS)))
    return 1000 * sum(map(len, alerts)) / (SERIES * (RUNS - LEARNED))


@pytest.mark.parametrize(("noise", "limit"), [(normal, 0.2), (two_states, 0.2), (spiked, 0.4)])
def test_flat_series_raise_almost_nothing(noise: Noise, limit: float) -> None:
    """The limit is twice the claimed rate: 54,000 runs have few alerts, whose number varies."""
    assert alerts_per_1000(noise, seed=1) <= limit


@pytest.mark.parametrize(
    ("noise", "limit"),
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
def test_flat_series_of_noise_that_nothing_was_tuned_on_raise_little(noise: Noise, limit: float) -> None:
    """The limit is about twice the rate in docs/explanation/histories.md: few runs have few alerts."""
    assert alerts_per_1000(noise, seed=20) <= limit


@pytest.mark.parametrize(("height", "limit"), [(1, 25), (2, 6), (5, 2)])
def test_steps_are_found_within_the_claimed_number_of_runs(height: float, limit: float) -> None:
    many = normal(np.random.default_rng(2), (SERIES, 150))
    many[:, CHANGED:] += NOISE * height
    delays = []
    for alerts in detect_changes_in_each(many):
        after = [alert.raised for alert in alerts if alert.raised >= CHANGED]
        delays.append(after[0] - CHANGED + 1 if after else np.inf)
    assert np.median(delays) <= limit


def student(generator: np.random.Generator, shape: tuple[int, int]) -> Floats:
    """Return Student's noise with three degrees of freedom, of standard deviation ``NOISE``."""
    return 1 + NOISE * generator.standard_t(3, size=shape) / np.sqrt(3)


def skewed(generator: np.random.Generator, shape: tuple[int, int]) -> Floats:
    """Return lognormal noise of standard deviation ``NOISE``."""
    noise = lognormal(generator, shape)
    return 1 + NOISE * (noise - noise.mean()) / noise.std()


@pytest.mark.parametrize("noise", [normal, spiked, heavy, student, skewed, persistent(0.3)])
@pytest.mark.parametrize("direction", [1, -1])
def test_a_step_of_five_deviations_is_found_on_its_second_run_whatever_the_tails(noise: Noise, direction: int) -> None:
    many = noise(np.random.default_rng(5), (SERIES, CHANGED + 2))
    many[:, CHANGED:] += direction * 5 * NOISE
    found = [any(alert.raised > CHANGED for alert in alerts) for alerts in detect_changes_in_each(many)]
    assert np.mean(found) >= 0.65


def test_few_of_many_discoveries_are_false_and_most_steps_are_found_on_their_second_run() -> None:
    generator = np.random.default_rng(3)
    false_shares, found_shares = [], []
    for _ in range(15):
        many = normal(generator, (1010, CHANGED + 2))
        many[:10, CHANGED:] += 5 * NOISE
        raised = detect_changes_together(many)
        true = sum(any(alert.raised >= CHANGED for alert in alerts) for alerts in raised[:10])
        false = sum(map(len, raised[10:]))
        false_shares.append(false / max(true + false, 1))
        found_shares.append(true / 10)
    assert np.mean(false_shares) <= 0.05
    assert np.mean(found_shares) >= 0.9


def test_flat_series_raise_alerts_at_the_rate_that_discoveries_assume() -> None:
    many = normal(np.random.default_rng(4), (SERIES, RUNS))
    raised = sum(map(bool, detect_changes_in_each(many)))
    assert raised <= 3 * ALERT_RATE * SERIES * 180 + 3


def test_persistence_does_not_hide_a_step() -> None:
    many = persistent(0.3)(np.random.default_rng(21), (SERIES, RUNS))
    many[:, CHANGED:] += 5 * NOISE
    raised = detect_changes_in_each(many)
    found = [any(CHANGED <= alert.raised < CHANGED + 5 for alert in alerts) for alerts in raised]
    assert np.mean(found) >= 0.95


# --- the kinds of steps and drifts -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("runs", "noise", "trends"),
    [(15, 0.003, 0.9), (30, 0.003, 0.95), (100, 0.003, 0.95), (30, 0.01, 0.65), (60, 0.01, 0.85), (200, 0.01, 0.95)],
)
def test_a_drift_is_found_before_it_has_added_3_percent_and_called_a_trend_by_5(
    runs: int, noise: float, trends: float
) -> None:
    generator = np.random.default_rng(22)
    end = CHANGED + runs * 5 // 3
    drift = 0.03 / runs * np.maximum(np.arange(end) - CHANGED + 1, 0)
    raised = detect_changes_in_each((1 + drift) * (1 + noise * generator.standard_normal((150, end))))

    def share(until: int, kinds: set[ChangeKind]) -> float:
        within = range(CHANGED, until)
        found = [any(alert.raised in within and alert.kind in kinds for alert in alerts) for alerts in raised]
        return float(np.mean(found))

    assert share(CHANGED + runs, {ChangeKind.STEP, ChangeKind.TREND}) >= 0.97
    assert share(CHANGED + runs, {ChangeKind.TREND}) >= trends
    assert share(end, {ChangeKind.TREND}) >= 0.97


@pytest.mark.parametrize(("height", "least"), [(1, 0.8), (2, 0.8), (3, 0.9), (5, 0.95)])
def test_a_step_is_first_called_a_step(height: float, least: float) -> None:
    many = normal(np.random.default_rng(23), (200, CHANGED + 60))
    many[:, CHANGED:] += height * NOISE
    raised = detect_changes_in_each(many)
    first = [next((alert.kind for alert in alerts if alert.raised >= CHANGED), None) for alerts in raised]
    assert np.mean([kind is ChangeKind.STEP for kind in first if kind]) >= least
