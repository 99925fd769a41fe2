"""The dot product of two vectors of n floats: one number out of all of them.

Every thread adds up its share; the variants differ in how the threads of a block, and then the blocks, are added up.
"""

from perfsvc.suite import Benchmark, Tolerance, Variant, Work, ceil_div, finish, launch, memset, output, scratch

BLOCK = 256
MOST_BLOCKS = 1024


def inputs(rng, n):
    # Away from zero and of one sign: nothing cancels, so the relative error says something, and at the smoke point each
    # product weighs at least 0.25 / 20_011 = 1.2e-5 of the sum, so that one left out is beyond the tolerance.
    return {"a": rng.random(n, dtype="float32") + 0.5, "b": rng.random(n, dtype="float32") + 0.5}


def blocks(n, BLOCK):
    return min(ceil_div(n, BLOCK), MOST_BLOCKS)


def in_one_pass(name):
    """A variant whose blocks add their sums to the result themselves, which has to start at zero."""
    return Variant(
        name,
        source=f"{name}.cu",
        params={"BLOCK": BLOCK},
        steps=[
            memset("sum"),
            launch(entry=f"dot_{name}", grid=blocks, block=BLOCK, args=("sum", "a", "b", "n")),
        ],
    )


benchmark = Benchmark(
    axes={"n": (2**20, 2**25)},
    smoke={"n": 20_011},
    inputs=inputs,
    outputs={"sum": output("float32", 1)},
    reference=lambda a, b: a @ b,
    # Float32 sums of 256 elements a thread, then of 256 threads, then of up to 1024 blocks: about 1e-6, with room.
    tolerance=Tolerance(max=1e-5, mean=1e-5),
    work=lambda n: Work(read_bytes=8 * n, written_bytes=4, flops=2 * n),
    variants=[
        in_one_pass("shared_tree"),
        in_one_pass("warp_shuffle"),
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
    ],
)
