"""Large changes: found on their second run, from the fourth run of a series on, with the run in which they begin."""

import numpy as np

from perfsvc.judge.changes.detect import detect_changes_in_each


def stepping(levels, runs, *, seed, series=100, noise=0.01):
    """Return series that step from level to level, shape (series, runs)."""
    path = np.repeat(levels, runs)
    return path * (1 + noise * np.random.default_rng(seed).standard_normal((series, path.size)))


def found(many):
    """Return the first run and the run of the alert of all changes, for each series."""
    return [[(alert.start, alert.raised) for alert in alerts] for alerts in detect_changes_in_each(many, smallest=0.01)]


def test_a_large_step_is_found_on_its_second_run_in_the_first_week_as_in_the_third_year():
    for at, heights in {
        3: (1.5, 5.0, 0.2),
        6: (1.5, 5.0, 0.2),
        12: (1.2, 5.0),
        30: (1.1, 5.0),
        200: (1.1, 5.0),
    }.items():
        for height in heights:
            firsts = [alerts[:1] for alerts in found(stepping((1.0, height), (at, 3), seed=at))]
            assert firsts.count([(at, at + 1)]) >= 97, (at, height)


def test_the_run_in_which_a_step_begins_is_exact_and_the_next_step_is_never_missed():
    histories = found(stepping((10.0, 1.0, 1.7), (40, 20, 25), seed=1, series=300, noise=0.005))
    assert histories.count([(40, 41), (60, 61)]) >= 297
    assert all(any(start == 60 for start, _ in alerts) for alerts in histories)


def test_a_second_step_soon_after_a_first_one_is_found_as_fast():
    for between in (5, 10, 25):
        histories = found(stepping((1.0, 1.1, 1.35), (60, between, 5), seed=between))
        assert sum((60 + between, 61 + between) in alerts for alerts in histories) >= 95, between


def test_in_the_first_runs_noise_raises_almost_nothing():
    random, shape = np.random.default_rng(3), (2000, 20)
    noise = random.standard_normal(shape)
    for name, many in {
        "of 1 %": 1 + 0.01 * noise,
        "of 10 %": 1 + 0.1 * noise,
        "lognormal": np.exp(0.1 * noise),
        "two states": 1 + 0.05 * (random.random(shape) < 0.3) + 0.005 * noise,
        "spikes": (1 + 0.01 * noise) * np.where(random.random(shape) < 0.01, 1.5, 1.0),
    }.items():
        assert 1000 * sum(map(len, detect_changes_in_each(many))) / many.size <= 0.4, name
