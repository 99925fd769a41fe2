"""The product of two bfloat16 matrices in Triton, with sums in float32."""

import triton
import triton.language as tl


@triton.jit
def matmul_kernel(a, b, c, m, n, k, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr):
    """Compute a tile of ROWS x COLUMNS in each program.

    Eight rows of tiles follow each other in groups, so that programs that run together share tiles of ``b`` in the
    cache.
    """
    tiles_down = tl.cdiv(m, ROWS)
    in_group = 8 * tl.cdiv(n, COLUMNS)
    first = tl.program_id(0) // in_group * 8
    height = min(tiles_down - first, 8)
    tile_row = first + tl.program_id(0) % in_group % height
    tile_column = tl.program_id(0) % in_group // height

    row = tile_row * ROWS + tl.arange(0, ROWS)
    column = tile_column * COLUMNS + tl.arange(0, COLUMNS)
    depth = tl.arange(0, DEPTH)
    from_a = a + (row % m)[:, None] * k + depth[None, :]
    from_b = b + depth[:, None] * n + (column % n)[None, :]
    total = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for start in range(0, k, DEPTH):
        left = tl.load(from_a, mask=depth[None, :] < k - start, other=0.0)
        right = tl.load(from_b, mask=depth[:, None] < k - start, other=0.0)
        total = tl.dot(left, right, total)
        from_a += DEPTH
        from_b += DEPTH * n
    inside = (row < m)[:, None] & (column < n)[None, :]
    tl.store(c + row[:, None] * n + column[None, :], total.to(tl.bfloat16), mask=inside)
