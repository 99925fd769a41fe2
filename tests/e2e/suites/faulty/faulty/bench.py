"""Four ways to fail, and two variants that must not suffer from them."""

import numpy as np

from perfsvc.suite import Benchmark, Tolerance, Variant, Work, ceil_div, output


def inputs(rng, n):
    return {"a": rng.standard_normal(n, dtype=np.float32)}


def reference(a):
    return a.astype(np.float64)


def variant(name, entry, source="faulty.cu"):
    return Variant(name, source=source, entry=entry, grid=lambda n: ceil_div(n, 64), block=64, args=("out", "a", "n"))


benchmark = Benchmark(
    axes={"n": (1000,)},
    smoke={"n": 1000},
    inputs=inputs,
    outputs={"out": output("float32", lambda n: n)},
    reference=reference,
    tolerance=Tolerance(max=1e-6, mean=1e-7),
    work=lambda n: Work(read_bytes=4 * n, written_bytes=4 * n),
    variants=[
        variant("good", "copy"),
        variant("endless", "endless"),
        variant("overrun", "overrun"),
        variant("wrong", "wrong"),
        variant("uncompilable", "copy", source="uncompilable.cu"),
        variant("also_good", "copy"),
    ],
)
