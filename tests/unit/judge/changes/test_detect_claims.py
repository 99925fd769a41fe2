"""How often the detector is wrong and how soon it finds a change: small versions of tests/benchmarks/detectors.py."""

import numpy as np
import pytest

from perfsvc.judge import detect_changes_together
from perfsvc.judge.changes.detect import ALERT_RATE, detect_changes_in_each
from perfsvc.model import ChangeKind

SERIES = 250
RUNS = 200
LEARNED = 20
NOISE = 0.01
TICK_S = 32e-9
CHANGED = 100
"""The run with which a change begins."""


def normal(generator, shape):
    return 1 + NOISE * generator.standard_normal(shape)


def two_states(generator, shape):
    slow = generator.random(shape) < 0.3
    return 1 + 0.05 * slow + 0.005 * generator.standard_normal(shape)


def spiked(generator, shape):
    return normal(generator, shape) * np.where(generator.random(shape) < 0.01, 1.1, 1.0)


def lognormal(generator, shape):
    """Return noise as skewed as a time of 30 % noise, of standard deviation ``NOISE``."""
    noise = np.exp(0.3 * generator.standard_normal(shape))
    return 1 + NOISE * (noise - noise.mean()) / noise.std()


def heavy(generator, shape):
    """Return Student's noise with five degrees of freedom: 5 of 1,000 runs lie beyond 4 standard deviations."""
    return 1 + NOISE * generator.standard_t(5, size=shape) * np.sqrt(3 / 5)


def ticking(generator, shape):
    """Return times of about 8 µs with a noise of half a tick of the clock."""
    base = 8e-6 * (1 + 0.1 * generator.random((shape[0], 1)))
    return TICK_S * np.round(base * (1 + 0.002 * generator.standard_normal(shape)) / TICK_S)


def gappy(generator, shape):
    """Return noise in which every fifth run is missing."""
    return np.where(generator.random(shape) < 0.2, np.nan, normal(generator, shape))


def persistent(generator, shape):
    """Return noise in which each run repeats 30 % of the deviation of the run before."""
    deviations = generator.standard_normal(shape)
    for run in range(1, shape[1]):
        deviations[:, run] = 0.3 * deviations[:, run - 1] + np.sqrt(1 - 0.3**2) * deviations[:, run]
    return 1 + NOISE * deviations


@pytest.mark.slow
def test_flat_series_of_any_noise_raise_almost_nothing():
    """The limits are about twice the rates in docs/explanation/histories.md: few runs have few alerts."""
    limits = {normal: 0.2, two_states: 0.2, spiked: 0.4, lognormal: 0.4, heavy: 0.4, ticking: 0.3, gappy: 0.2}
    for noise, limit in (limits | {persistent: 1.0}).items():
        alerts = detect_changes_in_each(noise(np.random.default_rng(1), (SERIES, RUNS)))
        assert 1000 * sum(map(len, alerts)) / (SERIES * (RUNS - LEARNED)) <= limit, noise
        if noise is normal:
            assert sum(map(bool, alerts)) <= 3 * ALERT_RATE * SERIES * (RUNS - LEARNED) + 3


def test_steps_are_found_within_the_claimed_number_of_runs_and_first_called_a_step():
    for height, limit, least in [(1, 25, 0.8), (2, 6, 0.8), (5, 2, 0.95)]:
        many = normal(np.random.default_rng(2), (SERIES, 150))
        many[:, CHANGED:] += NOISE * height
        after = [[alert for alert in alerts if alert.raised >= CHANGED] for alerts in detect_changes_in_each(many)]
        assert np.median([alerts[0].raised - CHANGED + 1 if alerts else np.inf for alerts in after]) <= limit, height
        assert np.mean([alerts[0].kind is ChangeKind.STEP for alerts in after if alerts]) >= least, height


@pytest.mark.slow
def test_a_step_of_five_deviations_is_found_on_its_second_run_whatever_the_tails():
    for noise in (normal, spiked, heavy, lognormal, persistent):
        for direction in (1, -1):
            many = noise(np.random.default_rng(5), (SERIES, CHANGED + 2))
            many[:, CHANGED:] += direction * 5 * NOISE
            found = [any(alert.raised > CHANGED for alert in alerts) for alerts in detect_changes_in_each(many)]
            assert np.mean(found) >= 0.65, (noise, direction)


@pytest.mark.slow
def test_few_of_many_discoveries_are_false_and_most_steps_are_found_on_their_second_run() -> None:
    generator = np.random.default_rng(3)
    true = false = 0
    for _ in range(6):
        many = normal(generator, (1010, CHANGED + 2))
        many[:10, CHANGED:] += 5 * NOISE
        raised = detect_changes_together(many)
        true += sum(any(alert.raised >= CHANGED for alert in alerts) for alerts in raised[:10])
        false += sum(map(len, raised[10:]))
    assert true >= 54
    assert false <= 0.05 * (true + false)


def test_a_drift_is_found_before_it_has_added_3_percent_and_called_a_trend_by_5():
    for runs, noise, trends in [(15, 0.003, 0.9), (100, 0.003, 0.95), (30, 0.01, 0.65), (200, 0.01, 0.95)]:
        generator = np.random.default_rng(22)
        end = CHANGED + runs * 5 // 3
        drift = 0.03 / runs * np.maximum(np.arange(end) - CHANGED + 1, 0)
        raised = detect_changes_in_each((1 + drift) * (1 + noise * generator.standard_normal((40, end))))
        by_3 = [{alert.kind for alert in alerts if CHANGED <= alert.raised < CHANGED + runs} for alerts in raised]
        by_5 = [{alert.kind for alert in alerts if alert.raised >= CHANGED} for alerts in raised]
        assert np.mean([bool(kinds & {ChangeKind.STEP, ChangeKind.TREND}) for kinds in by_3]) >= 0.97, (runs, noise)
        assert np.mean([ChangeKind.TREND in kinds for kinds in by_3]) >= trends, (runs, noise)
        assert np.mean([ChangeKind.TREND in kinds for kinds in by_5]) >= 0.97, (runs, noise)
