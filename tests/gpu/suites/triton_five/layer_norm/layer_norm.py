"""Layer normalisation of the rows of a matrix in Triton."""

import triton
import triton.language as tl


@triton.jit
def layer_norm_kernel(x, weight, bias, y, columns, EPSILON: tl.constexpr, BLOCK: tl.constexpr):
    """Normalise one row in each program; BLOCK is a power of two that holds the row."""
    column = tl.arange(0, BLOCK)
    inside = column < columns
    row = tl.program_id(0).to(tl.int64) * columns
    values = tl.load(x + row + column, mask=inside, other=0.0)
    mean = tl.sum(values, axis=0) / columns
    centred = tl.where(inside, values - mean, 0.0)
    variance = tl.sum(centred * centred, axis=0) / columns
    normal = centred / tl.sqrt(variance + EPSILON)
    scaled = normal * tl.load(weight + column, mask=inside) + tl.load(bias + column, mask=inside)
    tl.store(y + row + column, scaled, mask=inside)
