"""matrix_add at its edges: the threads of one block, and rows that begin and end between 16-byte boundaries."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsvc.model import Status


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (1, 32), (32, 1), (31, 29), (32, 32)])
def test_one_block_is_right_up_to_its_last_thread(check, rows, columns):
    assert check("matrix_add/one_block", rows=rows, columns=columns)["one_block"].status is Status.OK


@pytest.mark.parametrize(("rows", "columns"), [(33, 1), (1, 33)])
def test_one_block_ends_where_its_threads_do(check, rows, columns):
    assert check("matrix_add/one_block", rows=rows, columns=columns)["one_block"].status is Status.SKIPPED


@pytest.mark.parametrize("columns", [*range(1, 10), *range(125, 134)])
def test_float4_rows_may_begin_and_end_anywhere(check, columns):
    assert check("matrix_add/float4_rows", rows=9, columns=columns)["float4_rows"].status is Status.OK


@given(row=st.integers(0, 1 << 20), columns=st.integers(1, 1 << 20))
def test_no_row_touches_more_quads_than_the_grid_has_threads_for(suite, row, columns):
    first, last = row * columns // 4, ((row + 1) * columns - 1) // 4
    assert last - first + 1 <= suite.benchmark("matrix_add").names["quads"](columns)
