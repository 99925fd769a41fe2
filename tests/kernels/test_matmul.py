"""matmul beyond what any point shows: how precise its sums are, and where its tiles end."""

from itertools import product

import pytest

from perfsvc.model import Status

pytestmark = pytest.mark.slow  # compiles

PRECISE = 1e-6


def test_compensated_sums_are_precise_where_plain_ones_are_not(check):
    point = {"m": 65, "n": 66, "k": 1000}
    assert check("matmul/kahan", **point)["kahan"].max_error < PRECISE
    assert check("matmul/naive", **point)["naive"].max_error > PRECISE


def test_stages_are_right_before_they_are_all_filled_and_when_they_come_round(check):
    for n, k in product((130, 132), (1, 7, 8, 9, 16, 23, 24, 25, 31, 32, 33, 48, 49)):
        assert check("matmul/pipelined", m=3, n=n, k=k)["pipelined"].status is Status.OK


def test_tiles_are_high_where_every_multiprocessor_has_one_and_right_there_too(suite, check):
    names = suite.benchmark("matmul").names
    for beyond in (2, 4):  # copies of one float, and of four
        n = 128 * (names["SMS"] - 1) + beyond
        assert (names["tile_height"](3, n), names["tile_height"](3, n - 128)) == (128, 64)
        assert check("matmul/pipelined", m=3, n=n, k=20)["pipelined"].status is Status.OK


def test_the_cycles_of_a_block_are_counted(check):
    found = check("matmul/flat_index", m=20, n=30, k=40)["flat_index"]
    assert found.metrics["block_cycles"] > 0
