"""Sums of independent terms by few threads: what a loop costs that is not unrolled.

On an H100 or H200 the grid is one block of 8 warps on each of 132 multiprocessors, too few to hide that a warp waits
for each of its results.
"""

from perfsvc.suite import Benchmark, Tolerance, Variant, Work, ceil_div, output

TERMS, STEPS, BLOCK = 512, 16, 256


def reference(a):
    total = 0.0
    for term in range(TERMS):
        x = a + 0.001 * term
        for _ in range(STEPS):
            x = x - 0.01 * x * x
        total = total + x
    return total


def variant(name, unrolled):
    return Variant(
        name,
        source="series.cu",
        entry="series",
        params={"TERMS": TERMS, "STEPS": STEPS, "UNROLLED": unrolled},
        grid=lambda n: ceil_div(n, BLOCK),
        block=BLOCK,
        args=("b", "a", "n"),
    )


benchmark = Benchmark(
    axes={"n": (132 * BLOCK,)},
    smoke={"n": 1009},
    inputs=lambda rng, n: {"a": rng.random(n, dtype="float32")},
    outputs={"b": output("float32", lambda n: n)},
    reference=reference,
    tolerance=Tolerance(max=1e-4, mean=1e-4),
    work=lambda n: Work(read_bytes=4 * n, written_bytes=4 * n, flops=3 * STEPS * TERMS * n),
    variants=[variant("unrolled", 8), variant("rolled", 1)],
)
