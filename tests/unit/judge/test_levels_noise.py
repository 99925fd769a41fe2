import json
from pathlib import Path

import numpy as np
import pytest

from perfsvc.judge import estimate, noise_of
from perfsvc.model import Noise

H200 = Path(__file__).parents[2] / "data" / "noise" / "h200.json"
SIZES = pytest.mark.parametrize(("seeds", "slack"), [(80, 2), pytest.param(400, 1, marks=pytest.mark.slow)])
"""How many seeds, and by how much few of them widen a limit."""


def replicas_of(seed: int, *, within: float, between: float, replicas: int, samples: int) -> list[np.ndarray]:
    """Return normal times of about 10 µs with two known levels of noise."""
    rng = np.random.default_rng(seed)
    medians = 1e-5 * (1 + between * rng.standard_normal(replicas))
    return [median * (1 + within * rng.standard_normal(samples)) for median in medians]


@SIZES
def test_both_levels_are_estimated_without_bias(seeds, slack):
    for replicas in (3, 10):
        for within, between in [(0.02, 0.01), (0.005, 0.005), (0.001, 0.02)]:
            noises = [
                noise_of(replicas_of(seed, within=within, between=between, replicas=replicas, samples=100))
                for seed in range(seeds)
            ]
            within_found = np.mean([noise.within for noise in noises])
            between_found = np.sqrt(np.mean([noise.between**2 for noise in noises]))
            assert within_found == pytest.approx(within, rel=0.03 * slack), replicas
            assert between_found == pytest.approx(between, rel=0.1 * slack), replicas


def test_neither_a_few_disturbed_launches_nor_another_unit_change_a_level() -> None:
    quiet = replicas_of(1, within=0.01, between=0.005, replicas=3, samples=200)
    disturbed = [np.concatenate([times, [times.max() * 50] * 4]) for times in quiet]
    assert noise_of(disturbed).within == pytest.approx(noise_of(quiet).within, rel=0.1)
    assert noise_of(disturbed).between == pytest.approx(noise_of(quiet).between, rel=0.1)
    slow = noise_of([1000 * replica for replica in quiet])
    assert (slow.within, slow.between) == pytest.approx((noise_of(quiet).within, noise_of(quiet).between))


def test_equal_times_and_too_few_samples_or_replicas_have_no_noise() -> None:
    assert noise_of([[1e-5] * 10] * 3) == Noise(0.0, 0.0)
    between = [noise_of(replicas_of(s, within=0.02, between=0.0, replicas=3, samples=100)).between for s in range(80)]
    assert np.mean(between) < 0.4 * 1.2533 * 0.02 / 10  # the error of a median
    assert np.median(between) == 0.0
    assert noise_of([]) == noise_of([[], [1.0]]) == noise_of([[1.0], [1.1], [1.2]]) == Noise(None, None)
    noise = noise_of([[1.0, 1.1, 1.2], [5.0], []])
    assert (noise.within, noise.between) == (pytest.approx(1.4826 * 0.1 / 1.1, rel=1e-4), None)
    assert noise_of([[1.0] * 10, [1.1] * 10]) == Noise(0.0, pytest.approx(0.1 / np.sqrt(2) / 1.05))


def test_impossible_times_are_refused():
    for bad in [0.0, -1.0, float("nan"), float("inf")]:
        with pytest.raises(ValueError, match="sample"):
            noise_of([[1.0, bad], [1.0, 1.0]])


def test_the_noise_of_real_kernels_is_the_known_one():
    for kernel, within, between in [("transpose_padded", 0.0253, 0.0073), ("vector_add_small", 0.0448, 0.0291)]:
        times = [np.array(replica) * 1e-6 for replica in json.loads(H200.read_text())[kernel]]
        noise = noise_of(times)
        assert noise.within == pytest.approx(within, rel=0.01), (kernel, within, between)
        assert noise.between == pytest.approx(between, rel=0.01), (kernel, within, between)
        medians = [np.median(replica) for replica in times]
        assert noise.between < np.std(medians, ddof=1) / np.mean(medians), (kernel, within, between)


def test_the_error_of_a_median_comes_from_the_interval_of_its_estimate():
    from scipy import stats

    for samples in (2, 5, 50, 101):
        replicas = replicas_of(samples, within=0.01, between=0.05, replicas=4, samples=samples)
        levels = [estimate(times) for times in replicas]
        medians = np.array([level.median_s for level in levels])
        rank = 1 + int(np.searchsorted(np.sort(replicas[0]), levels[0].low_s))
        spans = -2 * stats.norm.ppf(stats.binom.cdf(rank - 1, samples, 0.5))
        errors = [(level.high_s - level.low_s) / (spans * level.median_s) for level in levels]
        between = np.var(medians / medians.mean(), ddof=1) - np.mean(np.square(errors))
        assert noise_of(replicas).between == pytest.approx(np.sqrt(max(between, 0))), samples


@SIZES
def test_the_noise_of_places_is_estimated_without_bias(seeds, slack):
    for places in [2, 8]:
        for noise in [0.002, 0.02]:
            estimated = []
            for seed in range(seeds):
                rng = np.random.default_rng(seed)
                replicas, medians = [], []
                for _ in range(3):
                    at_places = [
                        1e-5 * (1 + noise * rng.standard_normal()) * (1 + 0.005 * rng.standard_normal(25))
                        for _ in range(places)
                    ]
                    medians.append([np.median(times) for times in at_places])
                    level = np.mean(medians[-1])
                    replicas.append(np.concatenate([times * level / np.median(times) for times in at_places]))
                estimated.append(noise_of(replicas, medians).places)
            assert np.sqrt(np.mean(np.square(estimated))) == pytest.approx(noise, rel=0.1 * slack), (places, noise)


def test_the_lowest_and_the_highest_place_are_means_over_the_replicas() -> None:
    replicas = [[1.0, 1.1, 0.9]] * 3
    noise = noise_of(replicas, [[0.9, 1.1], [0.8, 1.2], []])
    assert (noise.lowest_place_s, noise.highest_place_s) == (pytest.approx(0.85), pytest.approx(1.15))
    assert noise_of(replicas, [[1.0], [1.0], []]) == noise_of(replicas)
    assert noise_of(replicas).places is None
