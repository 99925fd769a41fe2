"""The sum of cubes: it wraps around as the integers of the device do, and slow variants are given little."""

import pytest

from perfsvc.model import Status
from perfsvc.suite import Selection
from perfsvc.suite.arrays import make_arrays


@pytest.fixture(scope="module")
def smoke(suite):
    (spec,) = suite.resolve(Selection(("sum_of_cubes/one_thread",)), "smoke")[0]
    return spec


def test_the_reference_is_the_whole_sum_modulo_two_to_the_32(smoke):
    inputs, expected = make_arrays(smoke)
    whole = sum(int(number) ** 3 for number in inputs["a"])
    assert whole > 2**32
    assert int(expected["sum"][0]) == whole % 2**32


@pytest.mark.parametrize("n", [1, 2, 20_011, 2**16])
def test_every_variant_is_exact(check, n):
    found = check("sum_of_cubes", n=n)
    assert {result.status for result in found.values()} == {Status.OK}
    assert {result.max_error for result in found.values()} == {0.0}


def test_one_thread_and_one_block_do_not_run_large_points(check):
    found = check("sum_of_cubes", n=2**16 + 1)
    assert {name for name, result in found.items() if result.status is Status.SKIPPED} == {"one_thread", "one_block"}


def test_more_elements_than_a_grid_has_threads_are_all_added(check):
    check("sum_of_cubes", n=2**18 + 1)
