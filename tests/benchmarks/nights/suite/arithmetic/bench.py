"""y = x by iterations that end in x however many there are: bound by arithmetic, whose speed is the clock's.

SLOWED names variants of PERCENT more iterations, RECODED those that are other code of the same speed.
"""

import os

import numpy as np

from perfsvc.suite import Benchmark, Tolerance, Variant, Work, ceil_div, output

BLOCK = 256


def named(variable, variant):
    return variant in os.environ.get(variable, "").split(",")


def variant(name, repeat):
    """Each takes 0.1 to 0.3 ms on an H100."""
    percent = int(os.environ.get("PERCENT", "0")) if named("SLOWED", name) else 0
    params = {"REPEAT": repeat + repeat * percent // 100, "RECODED": int(named("RECODED", name)), "BLOCK": BLOCK}
    return Variant(
        name,
        source="arithmetic.cu",
        entry=name,
        grid=lambda n: ceil_div(n, BLOCK),
        block=BLOCK,
        args=("y", "x", "n"),
        params=params,
    )


benchmark = Benchmark(
    axes={"n": (2**20,)},
    smoke={"n": 2**10},
    inputs=lambda rng, n: {"x": rng.random(n, dtype="float32") + np.float32(0.5)},
    outputs={"y": output("float32", lambda n: n)},
    reference=lambda x: x,
    tolerance=Tolerance(max=1e-6, mean=5e-7),  # the last few bits may never come to rest
    work=lambda n: Work(read_bytes=4 * n, written_bytes=4 * n),
    variants=[
        variant("halving", 5000),
        variant("four_chains", 1300),
        variant("roots", 400),
        variant("newton", 300),
        variant("in_shared", 600),
    ],
)
