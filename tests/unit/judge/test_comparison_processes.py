"""``compare`` on real processes: how often it is wrong, and how often it finds a true change.

tests/benchmarks/judge_pairs.py draws more, and prints the rates.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from perfsvc.judge import Comparison, compare
from perfsvc.model import Verdict

Times = NDArray[np.float64]
Side = list[Times]

DRAWS = 400
TICK_S = 32e-9
CHANGES = {Verdict.REGRESSION, Verdict.IMPROVEMENT}
KERNELS = ["vec_add", "dot", "tr_naive", "tr_pad", "matmul", "vec_add_mid"]


@pytest.fixture(scope="module")
def processes() -> dict[str, Times]:
    """Return times in seconds by kernel and share of extra work, shape (30 processes, 100 samples)."""
    with np.load(Path(__file__).parents[2] / "data" / "noise" / "processes.npz") as stored:
        return {key: stored[key] * TICK_S for key in stored.files}


def pairs(before: Times, after: Times, replicas: int) -> Iterator[tuple[Side, Side]]:
    """Yield sides of different processes; sides of the same work share no process."""
    generator = np.random.default_rng(1)
    for _ in range(DRAWS):
        order = generator.permutation(len(before))
        other = order[replicas:] if before is after else generator.permutation(len(after))
        yield list(before[order[:replicas]]), list(after[other[:replicas]])


def share(comparisons: Iterator[Comparison], condition: Callable[[Comparison], bool]) -> float:
    return sum(map(condition, comparisons)) / DRAWS


def false_changes(times: Times, replicas: int, threshold: float = 0.01) -> float:
    comparisons = (compare(*sides, threshold=threshold) for sides in pairs(times, times, replicas))
    return share(comparisons, lambda comparison: comparison.verdict in CHANGES)


def regressions(before: Times, after: Times, replicas: int, threshold: float = 0.01) -> float:
    comparisons = (compare(*sides, threshold=threshold) for sides in pairs(before, after, replicas))
    return share(comparisons, lambda comparison: comparison.verdict is Verdict.REGRESSION)


@pytest.mark.parametrize("replicas", [3, 5])
@pytest.mark.parametrize("kernel", KERNELS)
def test_the_same_work_is_called_changed_no_more_often_than_alpha(
    processes: dict[str, Times], kernel: str, replicas: int
) -> None:
    assert false_changes(processes[f"{kernel} 0"], replicas) <= 0.015


@pytest.mark.parametrize("kernel", ["vec_add", "dot", "tr_naive"])
def test_a_fine_threshold_causes_no_false_changes(processes: dict[str, Times], kernel: str) -> None:
    assert false_changes(processes[f"{kernel} 0"], 5, threshold=0.005) <= 0.003


@dataclass(frozen=True)
class Goal:
    """The smallest share of pairs with more work that must be called regressions."""

    work: str
    replicas: int
    threshold: float
    least: float


@pytest.mark.parametrize(
    "goal", [Goal("0.02", 3, 0.01, 0.9), Goal("0.02", 5, 0.01, 0.99), Goal("0.01", 5, 0.005, 0.85)]
)
@pytest.mark.parametrize("kernel", ["vec_add", "dot"])
def test_more_work_is_found_and_no_less_with_more_samples(processes: dict[str, Times], kernel: str, goal: Goal) -> None:
    before, after = processes[f"{kernel} 0"], processes[f"{kernel} {goal.work}"]
    many = regressions(before, after, goal.replicas, goal.threshold)
    assert many >= goal.least
    assert many >= regressions(before[:, :10], after[:, :10], goal.replicas, goal.threshold) - 0.03


@pytest.mark.parametrize("replicas", [1, 2, 3, 5, 10])
@pytest.mark.parametrize("slow", [0, 1])
def test_one_disturbed_replica_decides_nothing(processes: dict[str, Times], replicas: int, slow: int) -> None:
    times = processes["dot 0"]
    for _, sides in zip(range(50), pairs(times, times, replicas), strict=False):
        sides[slow][0] = 5 * sides[slow][0]
        comparison = compare(*sides, threshold=0.005)
        assert comparison.verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize(("few", "many"), [(1, 15), (2, 15), (3, 15)])
def test_one_disturbed_replica_decides_nothing_against_many(processes: dict[str, Times], few: int, many: int) -> None:
    times = processes["dot 0"]
    slow = [*times[: few - 1], 5 * times[few]]
    for sides in [(list(times[-many:]), slow), (slow, list(times[-many:]))]:
        assert compare(*sides).verdict is Verdict.INCONCLUSIVE


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
