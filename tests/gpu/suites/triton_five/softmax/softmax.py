"""Softmax of the rows of a matrix in Triton."""

import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x, y, columns, BLOCK: tl.constexpr):
    """Normalise one row in each program; BLOCK is a power of two that holds the row."""
    column = tl.arange(0, BLOCK)
    inside = column < columns
    row = tl.program_id(0).to(tl.int64) * columns
    values = tl.load(x + row + column, mask=inside, other=-float("inf"))
    powers = tl.exp(values - tl.max(values, axis=0))
    tl.store(y + row + column, powers / tl.sum(powers, axis=0), mask=inside)
