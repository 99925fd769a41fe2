import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsvc.judge.comparison import Comparison, compare_with_devices
from perfsvc.model import Verdict

Replicas = list[list[float]]
CHANGES = {Verdict.REGRESSION, Verdict.IMPROVEMENT}

replicas = st.lists(st.lists(st.floats(1e-6, 2e-6), min_size=1, max_size=3), min_size=1, max_size=4)
devices = st.lists(replicas, min_size=2, max_size=5)


def compared(others: list[Replicas], candidate: Replicas, threshold: float = 0.01) -> Comparison:
    medians = [[float(np.median(replica)) for replica in device] for device in (*others, candidate)]
    return compare_with_devices(medians[:-1], medians[-1], threshold=threshold)


def device(generator: np.random.Generator, count: int, *, between: float, within: float = 0.001) -> Replicas:
    """Return replicas of a single sample around a device's own time."""
    center = 1e-5 * math.exp(between * generator.standard_normal())
    return [[center * math.exp(within * generator.standard_normal())] for _ in range(count)]


def test_students_interval_of_one_further_device_by_hand() -> None:
    comparison = compared([[[1.0]], [[1.02]], [[0.99]]], [[1.1], [1.1]])
    logs = np.log([1.0, 1.02, 0.99])
    # t(2, 99.5 %) = 9.92484
    half = 9.92484 * logs.std(ddof=1) * math.sqrt(1 + 1 / 3)
    assert math.log(comparison.ratio) == pytest.approx(math.log(1.1) - logs.mean())
    assert math.log(comparison.low) == pytest.approx(math.log(comparison.ratio) - half, abs=1e-5)


def test_one_disturbed_replica_of_the_candidate_or_of_another_device_decides_nothing():
    for count, devices_count, factor in itertools.product((1, 2, 3, 5, 10), (2, 4, 16), (5, 0.2)):
        generator = np.random.default_rng(devices_count)
        for _ in range(5):
            others = [device(generator, 3, between=0.0003) for _ in range(devices_count)]
            candidate = device(generator, count, between=0.0003)
            sound = [list(times) for times in candidate]
            candidate[0][0] *= factor
            assert compared(others, candidate).verdict is Verdict.INCONCLUSIVE, (count, devices_count, factor)
            others[0][0][0] *= 5
            assert compared(others, sound).verdict not in CHANGES, (count, devices_count, factor)


def test_devices_that_agree_show_a_true_change() -> None:
    generator = np.random.default_rng(1)
    others = [device(generator, 3, between=0.001) for _ in range(5)]
    slow = [[1.03 * time for time in times] for times in device(generator, 3, between=0.001)]
    assert compared(others, slow).verdict is Verdict.REGRESSION
    assert compared(others, slow[:1]).verdict is Verdict.INCONCLUSIVE
    assert "--replicas 3" in compared(others, slow[:1]).reason


@pytest.mark.parametrize(("draws", "limit"), [(300, 8), pytest.param(3000, 46, marks=pytest.mark.slow)])
def test_equal_devices_are_called_changed_no_more_often_than_alpha(draws, limit) -> None:
    generator = np.random.default_rng(2)
    changed = 0
    for _ in range(draws):
        *others, candidate = (device(generator, 3, between=0.05) for _ in range(4))
        changed += compared(others, candidate, threshold=0.0).verdict in CHANGES
    assert changed <= limit  # three standard deviations above the expected 1 %


def test_a_single_device_shows_no_spread() -> None:
    with pytest.raises(ValueError, match="at least two devices, not 1"):
        compared([[[1.0]]], [[1.0]])


@given(devices, replicas, st.randoms(use_true_random=False), st.sampled_from([2.0**-30, 1024.0]))
def test_the_unit_and_the_order_of_devices_replicas_and_samples_do_not_matter(others, candidate, random, unit):
    shuffled = [sorted(device, key=lambda _: random.random()) for device in others[::-1]]
    plain, mixed = compared(others, candidate), compared(shuffled, [samples[::-1] for samples in candidate[::-1]])
    assert (plain.ratio, plain.low, plain.high) == pytest.approx((mixed.ratio, mixed.low, mixed.high))
    scaled = compared([[[unit * t for t in r] for r in b] for b in others], [[unit * t for t in r] for r in candidate])
    assert plain.verdict is scaled.verdict
    assert plain.ratio == pytest.approx(scaled.ratio)


@given(devices, replicas, st.lists(st.floats(0.2, 5.0), min_size=2, max_size=5))
def test_a_larger_effect_never_gets_a_milder_verdict(others, candidate, factors):
    order = {Verdict.IMPROVEMENT: -1, Verdict.UNCHANGED: 0, Verdict.INCONCLUSIVE: 0, Verdict.REGRESSION: 1}
    scaled = [[[factor * t for t in times] for times in candidate] for factor in sorted(factors)]
    results = [compared(others, replicas) for replicas in scaled]
    verdicts = [order[result.verdict] for result in results]
    assert verdicts == sorted(verdicts)
    assert not np.isnan([[result.ratio, result.low, result.high] for result in results]).any()
