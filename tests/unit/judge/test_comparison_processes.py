"""``compare`` on real processes: how often it is wrong, and how often it finds a true change.

tests/benchmarks/judge_pairs.py draws more, and prints the rates.
"""

import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from perfsvc.judge import compare
from perfsvc.model import Verdict

Times = NDArray[np.float64]
Side = list[Times]

TICK_S = 32e-9
CHANGES = {Verdict.REGRESSION, Verdict.IMPROVEMENT}
KERNELS = ["vec_add", "dot", "tr_naive", "tr_pad", "matmul", "vec_add_mid"]


@pytest.fixture(scope="module")
def processes() -> dict[str, Times]:
    """Return times in seconds by kernel and share of extra work, shape (30 processes, 100 samples)."""
    with np.load(Path(__file__).parents[2] / "data" / "noise" / "processes.npz") as stored:
        return {key: stored[key] * TICK_S for key in stored.files}


def pairs(before: Times, after: Times, replicas: int, draws: int) -> Iterator[tuple[Side, Side]]:
    """Yield sides of different processes; sides of the same work share no process."""
    generator = np.random.default_rng(1)
    for _ in range(draws):
        order = generator.permutation(len(before))
        other = order[replicas:] if before is after else generator.permutation(len(after))
        yield list(before[order[:replicas]]), list(after[other[:replicas]])


@pytest.mark.parametrize(("draws", "slack"), [(30, 0.02), pytest.param(400, 0.0, marks=pytest.mark.slow)])
def test_the_same_work_is_rarely_called_changed_and_more_work_is_found(processes, draws, slack):
    def share(before: Times, after: Times, replicas: int, threshold: float, verdicts: set[Verdict]) -> float:
        called = [compare(*sides, threshold=threshold).verdict for sides in pairs(before, after, replicas, draws)]
        return sum(verdict in verdicts for verdict in called) / draws

    for kernel in KERNELS:
        same = processes[f"{kernel} 0"]
        for replicas in (3, 5):
            assert share(same, same, replicas, 0.01, CHANGES) <= 0.015 + slack, (kernel, replicas)
        if kernel in {"vec_add", "dot", "tr_naive"}:
            assert share(same, same, 5, 0.005, CHANGES) <= 0.003 + slack, kernel
    for work, replicas, threshold, least in (("0.02", 3, 0.01, 0.9), ("0.02", 5, 0.01, 0.99), ("0.01", 5, 0.005, 0.85)):
        for kernel in ("vec_add", "dot"):
            before, after = processes[f"{kernel} 0"], processes[f"{kernel} {work}"]
            many = share(before, after, replicas, threshold, {Verdict.REGRESSION})
            few = share(before[:, :10], after[:, :10], replicas, threshold, {Verdict.REGRESSION})
            assert many >= max(least - 2 * slack, few - 0.03 - slack), (kernel, work, replicas)


def test_one_disturbed_replica_decides_nothing(processes):
    times = processes["dot 0"]
    for replicas, slow in itertools.product((1, 2, 3, 5, 10), (0, 1)):
        for sides in pairs(times, times, replicas, 10):
            sides[slow][0] = 5 * sides[slow][0]
            assert compare(*sides, threshold=0.005).verdict is Verdict.INCONCLUSIVE, (replicas, slow)
    for few in (1, 2, 3):
        slow = [*times[: few - 1], 5 * times[few]]
        for sides in [(list(times[-15:]), slow), (slow, list(times[-15:]))]:
            assert compare(*sides).verdict is Verdict.INCONCLUSIVE, few


def test_a_change_of_one_step_of_the_clock_is_inconclusive(processes: dict[str, Times]) -> None:
    # A step is 3 % of this microsecond: replicas that all agree cannot separate two steps.
    side = [np.full(100, 31.0) for _ in range(3)]
    for replica in side:
        replica[:20] += 1
    before, after = [TICK_S * replica for replica in side], [TICK_S * (replica + 1) for replica in side]
    comparison = compare(before, after)
    assert comparison.verdict is Verdict.INCONCLUSIVE
    assert comparison.smallest == pytest.approx(
        np.expm1(4.604 * np.sqrt(2 / 3) * np.hypot(1 / 31, 1 / 32) / np.sqrt(2)), rel=1e-3
    )
    assert compare(before, [2 * replica for replica in after]).verdict is Verdict.REGRESSION
