"""The dot product of two vectors of n floats, which is one number.

Each multiplication and addition needs two loads, so the memory bandwidth limits the speed. The variants differ in how
they add the sums of threads and blocks, in how many bytes are in flight, and in their rounding errors.
"""

from functools import cache

import numpy as np

from perfsvc.suite import (
    Benchmark,
    Tolerance,
    Variant,
    Work,
    call,
    ceil_div,
    finish,
    i32,
    launch,
    memset,
    output,
    scratch,
)

BLOCK = 256
MOST_BLOCKS = 1024
TAKEN_BACK = np.float32(127 / 128)


def inputs(rng, n):
    # The second half cancels most of the sum of the first half, in reverse order. So rounding errors of partial sums
    # are large compared with the result. No product is small, so the check notices a missing product.
    a, b = rng.random((2, n), dtype="float32") + np.float32(0.5)
    half = n // 2
    a[n - half :] = a[:half][::-1]
    b[n - half :] = -TAKEN_BACK * b[:half][::-1]
    return {"a": a, "b": b}


def tolerance(n):
    # Partial sums are up to 256 times as large as the result, and each rounding error is at most 6e-8 of a partial sum.
    # There are a few roundings in each block, and one for each block that adds its sum to the result. Errors have
    # either sign, so they grow with the square root of their number.
    error = 3e-4 + 6e-7 * n**0.5
    return Tolerance(max=error, mean=error)


def blocks(n, BLOCK):
    return min(ceil_div(n, BLOCK), MOST_BLOCKS)


def blocks_of_quads(n, BLOCK, ITEMS, MOST):
    return max(1, min(ceil_div(n // 4, BLOCK * ITEMS), MOST))


def two_for_each_warp(n, BLOCK, ITEMS, MOST):
    return 2 * blocks_of_quads(n, BLOCK, ITEMS, MOST) * (BLOCK // 32)


@cache
def triton_kernel():
    import triton
    import triton.language as tl

    @triton.jit
    def dot(sum, a, b, n, TILE: tl.constexpr):  # noqa: A002 the name of the output
        i = tl.program_id(0) * TILE + tl.arange(0, TILE)
        products = tl.load(a + i, mask=i < n, other=0.0) * tl.load(b + i, mask=i < n, other=0.0)
        tl.atomic_add(sum, tl.sum(products))

    return dot


def with_triton(arrays, stream):
    """Launch the kernel written in Triton; the first call compiles it."""
    import torch

    total, a, b = (torch.as_tensor(arrays[name], device="cuda") for name in ("sum", "a", "b"))
    tile = 4096
    with torch.cuda.stream(torch.cuda.ExternalStream(stream)):
        triton_kernel()[(ceil_div(a.numel(), tile),)](total, a, b, a.numel(), TILE=tile, num_warps=8)


def with_cupy(arrays, stream):
    """Call the function of CuPy."""
    import cupy

    total, a, b = (cupy.asarray(arrays[name]) for name in ("sum", "a", "b"))
    with cupy.cuda.ExternalStream(stream):
        cupy.dot(a, b, out=total)


benchmark = Benchmark(
    axes={"n": (2**20, 2**26)},
    smoke={"n": 20_011},
    inputs=inputs,
    outputs={"sum": output("float32", 1)},
    reference=lambda a, b: a @ b,
    tolerance=tolerance,
    work=lambda n: Work(read_bytes=8 * n, written_bytes=4, flops=2 * n),
    variants=[
        Variant(
            "partials",
            source="partials.cu",
            params={"BLOCK": BLOCK},
            scratch={"partials": scratch("float32", blocks)},
            steps=[
                launch(entry="dot_partials", grid=blocks, block=BLOCK, args=("partials", "a", "b", "n")),
                finish("sum", "partials", "sum"),
            ],
        ),
        Variant(
            "shared_tree",
            source="shared_tree.cu",
            params={"BLOCK": BLOCK},
            steps=[
                memset("sum"),
                launch(entry="dot_shared_tree", grid=blocks, block=BLOCK, args=("sum", "a", "b", "n")),
            ],
        ),
        Variant(
            "two_kernels",
            source="two_kernels.cu",
            params={"BLOCK": BLOCK},
            scratch={"partials": scratch("float32", blocks)},
            steps=[
                launch(
                    source="partials.cu",
                    entry="dot_partials",
                    grid=blocks,
                    block=BLOCK,
                    args=("partials", "a", "b", "n"),
                ),
                launch(entry="dot_total", grid=1, block=BLOCK, args=("sum", "partials", i32(blocks))),
            ],
        ),
        Variant(
            "warp_shuffle",
            source="warp_shuffle.cu",
            params={"BLOCK": BLOCK},
            steps=[
                memset("sum"),
                launch(entry="dot_warp_shuffle", grid=blocks, block=BLOCK, args=("sum", "a", "b", "n")),
            ],
        ),
        Variant(
            "float4",
            source="float4.cu",
            params={"BLOCK": BLOCK, "ITEMS": 4, "MOST": 528},
            steps=[
                memset("sum"),
                launch(entry="dot_float4", grid=blocks_of_quads, block=BLOCK, args=("sum", "a", "b", "n")),
            ],
        ),
        Variant(
            "last_block",
            source="last_block.cu",
            entry="dot_last_block",
            params={"BLOCK": BLOCK, "ITEMS": 8, "MOST": 1056},
            scratch={"partials": scratch("float32", blocks_of_quads)},
            grid=blocks_of_quads,
            block=BLOCK,
            args=("sum", "partials", "a", "b", "n"),
        ),
        Variant(
            "compensated",
            source="compensated.cu",
            params={"BLOCK": BLOCK, "ITEMS": 4, "MOST": 528},
            scratch={"partials": scratch("float32", two_for_each_warp)},
            steps=[
                launch(entry="dot_compensated", grid=blocks_of_quads, block=BLOCK, args=("partials", "a", "b", "n")),
                finish("sum", "partials", "sum"),
            ],
        ),
        Variant(
            "float64",
            source="float64.cu",
            params={"BLOCK": BLOCK, "ITEMS": 4, "MOST": 528},
            scratch={"partials": scratch("float64", blocks_of_quads)},
            steps=[
                launch(entry="dot_float64", grid=blocks_of_quads, block=BLOCK, args=("partials", "a", "b", "n")),
                finish("sum", "partials", "sum"),
            ],
        ),
        Variant("triton", steps=[memset("sum"), call(with_triton)], requires=("cuda", "import triton", "import torch")),
        Variant("cupy", run=with_cupy, requires=("cuda", "import cupy")),
    ],
)
