"""Scaling: out = 2 a, three times over, so that scripted devices have something to time."""

import numpy as np

from perfsvc.suite import Benchmark, Tolerance, Variant, Work, ceil_div, output


def inputs(rng, n):
    return {"a": rng.standard_normal(n, dtype=np.float32)}


def reference(a):
    return 2.0 * a.astype(np.float64)


def variant(name, **settings):
    return Variant(
        name,
        source="scale.cu",
        entry="scale",
        grid=lambda n: ceil_div(n, 64),
        block=64,
        args=("out", "a", "n"),
        **settings,
    )


benchmark = Benchmark(
    axes={"n": (1000, 4000)},
    smoke={"n": 100},
    inputs=inputs,
    outputs={"out": output("float32", lambda n: n)},
    reference=reference,
    tolerance=Tolerance(max=1e-6, mean=1e-7),
    work=lambda n: Work(read_bytes=4 * n, written_bytes=4 * n, flops=n),
    variants=[variant("alpha"), variant("beta", params={"REPEAT": 1}), variant("gamma", params={"REPEAT": 2})],
)
