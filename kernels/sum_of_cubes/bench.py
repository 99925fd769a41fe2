"""The sum of the cubes of n unsigned integers of 32 bits, modulo 2^32.

Integers that wrap around can be added in any order, so every variant is exact. The variants differ in how many threads
they use, in which thread adds which elements, and in how the sums of the threads are added.
"""

import numpy as np

from perfsvc.suite import Benchmark, Tolerance, Variant, Work, ceil_div, finish, launch, memset, output, scratch

BLOCK = 256
MOST_BLOCKS = 1024
SMALL = 2**16
"""The largest n for the variants with a single thread or block."""
ITEMS = 4


def inputs(rng, n):
    return {"a": rng.integers(1, 2**32, n, dtype="uint32")}


def reference(a):
    return np.sum(a * a * a, dtype=np.uint32)


def blocks(n):
    return min(ceil_div(n, BLOCK), MOST_BLOCKS)


def threads(n):
    return blocks(n) * BLOCK


def added_on_the_host(name, grid, partials, **fields):
    """Return a variant that stores partial sums, which the host adds."""
    return Variant(
        name,
        source=f"{name}.cu",
        params={"BLOCK": BLOCK},
        scratch={"partials": scratch("uint32", partials)},
        steps=[
            launch(entry=f"cubes_{name}", grid=grid, block=BLOCK, args=("partials", "a", "n")),
            finish("sum", "partials", "sum"),
        ],
        **fields,
    )


benchmark = Benchmark(
    axes={"n": (SMALL, 2**26)},
    smoke={"n": 20_011},
    inputs=inputs,
    outputs={"sum": output("uint32", 1)},
    reference=reference,
    tolerance=Tolerance(max=0.0, mean=0.0),
    work=lambda n: Work(read_bytes=4 * n, written_bytes=4),
    variants=[
        Variant(
            "one_thread",
            source="one_thread.cu",
            entry="cubes_one_thread",
            grid=1,
            block=1,
            args=("sum", "a", "n"),
            only=lambda n: n <= SMALL,
        ),
        added_on_the_host("one_block", grid=1, partials=BLOCK, only=lambda n: n <= SMALL),
        added_on_the_host("many_blocks", grid=blocks, partials=threads),
        added_on_the_host("coalesced", grid=blocks, partials=threads),
        added_on_the_host("shared_tree", grid=blocks, partials=blocks),
        Variant(
            "uint4",
            source="uint4.cu",
            params={"BLOCK": BLOCK, "ITEMS": ITEMS},
            steps=[
                memset("sum"),
                launch(
                    entry="cubes_uint4",
                    grid=lambda n: max(1, ceil_div(n // 4, BLOCK * ITEMS)),
                    block=BLOCK,
                    args=("sum", "a", "n"),
                ),
            ],
        ),
    ],
)
