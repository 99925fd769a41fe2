"""Inputs that can be made at every point but one."""

import numpy as np

from perfsvc.suite import Benchmark, Tolerance, Variant, ceil_div, output


def inputs(rng, n):
    if n == 2000:
        raise MemoryError("no room for 2000")
    return {"a": rng.standard_normal(n, dtype=np.float32)}


benchmark = Benchmark(
    axes={"n": (1000, 2000, 3000)},
    smoke={"n": 100},
    inputs=inputs,
    outputs={"out": output("float32", lambda n: n)},
    reference=lambda a: a,
    tolerance=Tolerance(max=1e-6, mean=1e-7),
    variants=[
        Variant(
            "copy", source="copy.cu", entry="copy", grid=lambda n: ceil_div(n, 64), block=64, args=("out", "a", "n")
        )
    ],
)
