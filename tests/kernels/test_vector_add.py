"""vector_add where its variants end: at the threads of a block, at the blocks of a grid, at the last elements."""

import pytest

from perfsvc.model import Status


@pytest.mark.parametrize("n", [1, 1000, 1024])
def test_one_block_is_right_up_to_its_last_thread(check, n):
    assert check("vector_add/one_block", n=n)["one_block"].status is Status.OK


def test_one_block_ends_where_its_threads_do(check):
    assert check("vector_add/one_block", n=1025)["one_block"].status is Status.SKIPPED


@pytest.mark.parametrize("n", [4096 * 256, 4096 * 256 + 77])
def test_a_grid_of_limited_size_covers_all_elements(check, n):
    found = check("vector_add/grid_stride*", n=n)
    assert [result.status for result in found.values()] == [Status.OK, Status.OK]


@pytest.mark.parametrize("left_over", [0, 1, 2, 3])
def test_the_rest_after_float4_is_added(check, left_over):
    found = check("vector_add/float4*", n=4 * 5000 + left_over)
    assert {result.status for result in found.values()} == {Status.OK}
