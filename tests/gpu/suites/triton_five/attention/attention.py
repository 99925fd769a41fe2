"""The forward pass of attention in Triton, without a mask: softmax(Q K^T scale) V for each head."""

import triton
import triton.language as tl


@triton.jit
def attention_kernel(q, k, v, out, length, scale, WIDTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Compute ROWS rows of one head in each program.

    The softmax of a row is computed while its scores are: whenever a larger score appears, the sums so far shrink.
    """
    head = tl.program_id(1).to(tl.int64) * length * WIDTH
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    width = tl.arange(0, WIDTH)
    inside = (row < length)[:, None]
    queries = tl.load(q + head + row[:, None] * WIDTH + width[None, :], mask=inside, other=0.0)
    largest = tl.zeros((ROWS,), dtype=tl.float32) - float("inf")
    total = tl.zeros((ROWS,), dtype=tl.float32)
    sums = tl.zeros((ROWS, WIDTH), dtype=tl.float32)
    for first in range(0, length, COLUMNS):
        column = first + tl.arange(0, COLUMNS)
        present = column < length
        keys = tl.load(k + head + column[None, :] * WIDTH + width[:, None], mask=present[None, :], other=0.0)
        scores = tl.dot(queries, keys) * (scale * 1.4426950408889634)  # powers of two are faster than those of e
        scores = tl.where(present[None, :], scores, -float("inf"))
        larger = tl.maximum(largest, tl.max(scores, axis=1))
        weights = tl.exp2(scores - larger[:, None])
        shrink = tl.exp2(largest - larger)
        values = tl.load(v + head + column[:, None] * WIDTH + width[None, :], mask=present[:, None], other=0.0)
        sums = tl.dot(weights.to(values.dtype), values, sums * shrink[:, None])
        total = total * shrink + tl.sum(weights, axis=1)
        largest = larger
    result = (sums / total[:, None]).to(tl.bfloat16)
    tl.store(out + head + row[:, None] * WIDTH + width[None, :], result, mask=inside)
