"""vector_add, matrix_add and sum_of_cubes at their edges: threads of a block, blocks of a grid, rows between quads."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsvc.model import Status
from perfsvc.suite import Selection
from perfsvc.suite.arrays import make_arrays


def test_one_block_ends_where_its_threads_do(check):
    assert check("vector_add/one_block", n=1025)["one_block"].status is Status.SKIPPED
    for rows, columns in ((33, 1), (1, 33)):
        assert check("matrix_add/one_block", rows=rows, columns=columns)["one_block"].status is Status.SKIPPED


@pytest.mark.slow
def test_a_grid_of_limited_size_covers_all_elements(check):
    check("sum_of_cubes", n=2**18 + 1)
    for n in (4096 * 256, 4096 * 256 + 77):
        found = check("vector_add/grid_stride*", n=n)
        assert [result.status for result in found.values()] == [Status.OK, Status.OK]


@pytest.mark.slow
def test_float4_adds_the_rest_and_rows_that_begin_and_end_anywhere(check):
    for left_over in (0, 1, 2, 3):
        found = check("vector_add/float4*", n=4 * 5000 + left_over)
        assert {result.status for result in found.values()} == {Status.OK}
    for columns in (*range(1, 10), *range(125, 134)):
        assert check("matrix_add/float4_rows", rows=9, columns=columns)["float4_rows"].status is Status.OK


@given(row=st.integers(0, 1 << 20), columns=st.integers(1, 1 << 20))
def test_no_row_touches_more_quads_than_the_grid_has_threads_for(suite, row, columns):
    first, last = row * columns // 4, ((row + 1) * columns - 1) // 4
    assert last - first + 1 <= suite.benchmark("matrix_add").names["quads"](columns)


@pytest.fixture(scope="module")
def smoke(suite):
    (spec,) = suite.resolve(Selection(("sum_of_cubes/one_thread",)), "smoke")[0]
    return spec


def test_the_reference_is_the_whole_sum_modulo_two_to_the_32(smoke):
    inputs, expected = make_arrays(smoke)
    whole = sum(int(number) ** 3 for number in inputs["a"])
    assert whole > 2**32
    assert int(expected["sum"][0]) == whole % 2**32


@pytest.mark.slow
def test_one_thread_and_one_block_do_not_run_large_points(check):
    assert {result.status for result in check("sum_of_cubes", n=2**16).values()} == {Status.OK}
    found = check("sum_of_cubes", n=2**16 + 1)
    assert {name for name, result in found.items() if result.status is Status.SKIPPED} == {"one_thread", "one_block"}
