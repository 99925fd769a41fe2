"""Dot: what rounding takes away, and the variants that leave something behind for the next launch."""

import pytest

from perfsvc.suite import Selection
from perfsvc.suite.arrays import make_arrays

ROUNDED_ONCE = 6e-8
"""The largest relative error of a number in float32."""


@pytest.fixture(scope="module")
def smoke(suite):
    (spec,) = suite.resolve(Selection(("dot/partials",)), "smoke")[0]
    return spec


def test_one_product_left_out_is_beyond_the_tolerance(smoke):
    inputs, expected = make_arrays(smoke)
    lightest = abs(inputs["a"].astype(float) * inputs["b"]).min()
    assert lightest / abs(expected["sum"][0]) > smoke.tolerance.max


@pytest.mark.slow
def test_compensated_and_float64_sums_lose_no_more_than_the_result_does(check):
    for n in (2, 1000, 20_011):
        found = check("dot", n=n)
        assert found["compensated"].max_error < ROUNDED_ONCE
        assert found["float64"].max_error < ROUNDED_ONCE
        assert found["two_kernels"].max_error > 4 * ROUNDED_ONCE
    assert found["triton"].reason.startswith("requires cuda")  # a CPU skips libraries
    assert found["cupy"].reason.startswith("requires cuda")


def test_every_launch_finds_the_count_of_blocks_at_zero(check):
    for n in (20_011, 5, 2**17, 1, 20_011):  # one binary, loaded once
        check("dot/last_block*", n=n)
