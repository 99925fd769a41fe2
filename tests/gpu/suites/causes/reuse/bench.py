"""Sums of elements that lie apart: what a lower hit rate of the L2 cache costs.

The grid has no common factor with SPREAD, so that each block is there once.
"""

import numpy as np

from perfsvc.suite import Benchmark, Tolerance, Variant, Work, output

PASSES, SHIFT, BLOCK = 8, 2**18, 256  # an element is read again when 1 MiB more was read


def reference(a):
    return sum(np.roll(a, -step * SHIFT) for step in range(PASSES))


def variant(name, spread):
    return Variant(
        name,
        source="reuse.cu",
        entry="reuse",
        params={"PASSES": PASSES, "SHIFT": SHIFT, "SPREAD": spread},
        grid=lambda n: n // BLOCK,
        block=BLOCK,
        args=("b", "a", "n"),
    )


benchmark = Benchmark(
    points=[{"n": 2**26}],
    smoke={"n": 2**21},
    inputs=lambda rng, n: {"a": rng.random(n, dtype="float32")},
    outputs={"b": output("float32", lambda n: n)},
    reference=reference,
    tolerance=Tolerance(max=1e-6, mean=1e-7),
    work=lambda n: Work(read_bytes=4 * n, written_bytes=4 * n, flops=PASSES * n),
    variants=[variant("in_order", 1), variant("scattered", 48_271)],
)
