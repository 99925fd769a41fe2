import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsvc.judge.comparison import Comparison, compare_with_devices
from perfsvc.model import Verdict

Board = list[list[float]]
CHANGES = {Verdict.REGRESSION, Verdict.IMPROVEMENT}

replicas = st.lists(st.lists(st.floats(1e-6, 2e-6), min_size=1, max_size=3), min_size=1, max_size=4)
boards = st.lists(replicas, min_size=2, max_size=5)


def said(lent: list[Board], candidate: Board, threshold: float = 0.01) -> Comparison:
    return compare_with_devices(lent, candidate, threshold=threshold, alpha=0.01)


def board(generator: np.random.Generator, count: int, *, between: float, within: float = 0.001) -> Board:
    """Replicas of one sample around a GPU's own time."""
    center = 1e-5 * math.exp(between * generator.standard_normal())
    return [[center * math.exp(within * generator.standard_normal())] for _ in range(count)]


def test_students_interval_of_one_further_board_by_hand() -> None:
    found = said([[[1.0]], [[1.02]], [[0.99]]], [[1.1], [1.1]])
    logs = np.log([1.0, 1.02, 0.99])
    # t(2, 99.5 %) = 9.92484
    half = 9.92484 * logs.std(ddof=1) * math.sqrt(1 + 1 / 3)
    assert found.low is not None
    assert math.log(found.ratio) == pytest.approx(math.log(1.1) - logs.mean())
    assert math.log(found.low) == pytest.approx(math.log(found.ratio) - half, abs=1e-5)


@pytest.mark.parametrize("count", [1, 2, 3, 5, 10])
@pytest.mark.parametrize("lenders", [2, 4, 16])
@pytest.mark.parametrize("factor", [5, 0.2])
def test_one_replica_of_a_starved_host_decides_nothing(lenders: int, count: int, factor: float) -> None:
    generator = np.random.default_rng(lenders)
    for _ in range(30):
        lent = [board(generator, 3, between=0.0003) for _ in range(lenders)]
        candidate = board(generator, count, between=0.0003)
        candidate[0][0] *= factor
        assert said(lent, candidate).verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize("lenders", [2, 4, 16])
def test_nor_does_one_of_a_lending_board(lenders: int) -> None:
    generator = np.random.default_rng(lenders)
    for _ in range(30):
        lent = [board(generator, 3, between=0.0003) for _ in range(lenders)]
        lent[0][0][0] *= 5
        assert said(lent, board(generator, 3, between=0.0003)).verdict not in CHANGES


def test_boards_that_agree_show_what_truly_changed() -> None:
    generator = np.random.default_rng(1)
    lent = [board(generator, 3, between=0.001) for _ in range(5)]
    slow = [[1.03 * time for time in one] for one in board(generator, 3, between=0.001)]
    assert said(lent, slow).verdict is Verdict.REGRESSION
    assert said(lent, slow[:1]).verdict is Verdict.INCONCLUSIVE
    assert "--replicas 3" in said(lent, slow[:1]).reason


def test_equal_boards_are_called_changed_no_more_often_than_alpha_says() -> None:
    generator = np.random.default_rng(2)
    changed = 0
    for _ in range(3000):
        *lent, candidate = (board(generator, 3, between=0.05) for _ in range(4))
        changed += said(lent, candidate, threshold=0.0).verdict in CHANGES
    assert changed <= 46  # 30 are due; 46 is three standard deviations above


def test_one_board_alone_has_no_spread_to_lend() -> None:
    with pytest.raises(ValueError, match="two of them on, not from 1"):
        said([[[1.0]]], [[1.0]])


@given(boards, replicas, st.sampled_from([2.0**-30, 1024.0]))
def test_the_unit_does_not_matter(lent: list[Board], candidate: Board, unit: float) -> None:
    one = said(lent, candidate)
    other = said([[[unit * t for t in r] for r in b] for b in lent], [[unit * t for t in r] for r in candidate])
    assert one.verdict is other.verdict
    assert one.ratio == pytest.approx(other.ratio)


@given(boards, replicas, st.randoms(use_true_random=False))
def test_the_order_of_boards_replicas_and_samples_does_not_matter(
    lent: list[Board], candidate: Board, random: object
) -> None:
    shuffled = [sorted(one, key=lambda _: random.random()) for one in lent[::-1]]  # type: ignore[attr-defined]
    one, other = said(lent, candidate), said(shuffled, [samples[::-1] for samples in candidate[::-1]])
    assert (one.ratio, one.low, one.high) == pytest.approx((other.ratio, other.low, other.high))


@given(boards, replicas, st.lists(st.floats(0.2, 5.0), min_size=2, max_size=5))
def test_a_larger_effect_never_gets_a_milder_verdict(lent: list[Board], candidate: Board, factors: list[float]) -> None:
    order = {Verdict.IMPROVEMENT: -1, Verdict.UNCHANGED: 0, Verdict.INCONCLUSIVE: 0, Verdict.REGRESSION: 1}
    found = [said(lent, [[factor * t for t in one] for one in candidate]) for factor in sorted(factors)]
    assert [order[one.verdict] for one in found] == sorted(order[one.verdict] for one in found)
    assert not np.isnan([[one.ratio, one.low, one.high] for one in found]).any()
