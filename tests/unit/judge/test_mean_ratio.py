"""The geometric mean of a benchmark's ratios, and how often its interval holds the true mean."""

import math

import numpy as np
import pytest

from perfsvc.judge.comparison import compare
from perfsvc.judge.siblings import mean_ratio
from perfsvc.model import Case, Judgement, Series, Verdict

SERIES = Series(Case("dot", "tree"), "GPU-1", "NVIDIA H100")
TRIALS, CASES, REPLICAS, SAMPLES = 40, 6, 3, 6


def judged(ratio, low=None, high=None):
    return Judgement(SERIES, Verdict.INCONCLUSIVE, ratio=ratio, low=low, high=high)


def test_the_mean_of_opposite_changes_is_no_change_and_many_equal_ratios_have_the_interval_of_one():
    mean = mean_ratio([judged(2.0, 1.9, 2.1), judged(0.5, 0.45, 0.55)])
    assert mean.ratio == pytest.approx(1.0)
    assert mean.low == pytest.approx(math.sqrt(1.9 * 0.45))
    assert mean.high == pytest.approx(math.sqrt(2.1 * 0.55))
    assert mean.count == 2
    mean = mean_ratio([judged(1.1, 1.05, 1.15)] * 50)
    assert (mean.ratio, mean.low, mean.high) == pytest.approx((1.1, 1.05, 1.15))


def test_without_a_finite_interval_the_mean_has_none_and_what_has_no_ratio_does_not_count():
    for ends in [(None, None), (0.0, 2.0), (0.9, math.inf)]:
        mean = mean_ratio([judged(1.0, 0.9, 1.1), judged(4.0, *ends)])
        assert mean.ratio == pytest.approx(2.0), ends
        assert mean.low is mean.high is None, ends
    for ratio in (None, 0.0, math.inf):
        assert mean_ratio([judged(ratio)]).ratio is None, ratio
        assert mean_ratio([judged(ratio), judged(1.5, 1.4, 1.6)]).count == 1, ratio


def test_the_interval_covers_the_true_mean_however_much_noise_the_cases_share():
    """The variance between processes is shared by all cases to some part; the cases are of different noise."""
    for shared in [0.0, 0.5, 1.0]:
        generator = np.random.default_rng(7)
        truth = np.exp(generator.normal(0, 0.1, CASES))
        noise = 0.01 * 2.0 ** np.arange(CASES)[::-1] / 2**CASES * 4
        covered = 0
        for _ in range(TRIALS):
            sides = []
            for level in (np.ones(CASES), truth):
                process = generator.normal(0, 1, (REPLICAS, 1))
                own = generator.normal(0, 1, (REPLICAS, CASES))
                medians = np.log(level) + noise * (math.sqrt(shared) * process + math.sqrt(1 - shared) * own)
                samples = medians[:, :, None] + generator.normal(0, 0.0005, (REPLICAS, CASES, SAMPLES))
                sides.append(1e-4 * np.exp(samples))
            rows = [compare(list(sides[0][:, case]), list(sides[1][:, case])) for case in range(CASES)]
            mean = mean_ratio([judged(row.ratio, row.low, row.high) for row in rows])
            covered += mean.low <= math.exp(np.log(truth).mean()) <= mean.high
        assert covered / TRIALS >= 0.95, shared
