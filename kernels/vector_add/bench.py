"""c = a + b, element by element.

Each addition moves twelve bytes, so the memory bandwidth limits the speed.
"""

from perfsvc.suite import Benchmark, Tolerance, Variant, Work, ceil_div, output

MOST_THREADS = 1024
"""The most threads that a block can have, on every GPU."""
SMALL = 1000
"""The point of ``one_block``, and of one other variant for comparison."""


def inputs(rng, n):
    return {"a": rng.random(n, dtype="float32"), "b": rng.random(n, dtype="float32")}


benchmark = Benchmark(
    axes={"n": (SMALL, 2**26)},
    smoke={"n": 100_003},
    inputs=inputs,
    outputs={"c": output("float32", lambda n: n)},
    reference=lambda a, b: a + b,
    tolerance=Tolerance(max=2**-24, mean=2**-24),  # one rounding to float32
    work=lambda n: Work(read_bytes=8 * n, written_bytes=4 * n, flops=n),
    variants=[
        Variant(
            "one_block",
            source="one_block.cu",
            entry="vector_add_one_block",
            grid=1,
            block=lambda n: n,
            args=("c", "a", "b"),
            only=lambda n: n <= MOST_THREADS,
        ),
        Variant(
            "guarded",
            source="guarded.cu",
            entry="vector_add_guarded",
            grid=lambda n: ceil_div(n, 256),
            block=256,
            args=("c", "a", "b", "n"),
        ),
        Variant(
            "grid_stride",
            source="grid_stride.cu",
            entry="vector_add_grid_stride",
            params={"BLOCK": (128, 256)},
            grid=lambda n, BLOCK: min(ceil_div(n, BLOCK), 4096),
            block=lambda BLOCK: BLOCK,
            args=("c", "a", "b", "n"),
            only=lambda n: n != SMALL,
        ),
        Variant(
            "float4",
            source="float4.cu",
            entry="vector_add_float4",
            grid=lambda n: ceil_div(ceil_div(n, 4), 256),
            block=256,
            args=("c", "a", "b", "n"),
            only=lambda n: n != SMALL,
        ),
        Variant(
            "float4_batch",
            source="float4_batch.cu",
            entry="vector_add_float4_batch",
            params={"BLOCK": 256, "QUADS": 2},
            grid=lambda n, BLOCK, QUADS: ceil_div(ceil_div(n, 4), BLOCK * QUADS),
            block=lambda BLOCK: BLOCK,
            args=("c", "a", "b", "n"),
            only=lambda n: n != SMALL,
        ),
    ],
)
