"""Faults that only a GPU has: those that lose the context, and those that the driver refuses."""

import numpy as np

from perfsvc.suite import Benchmark, Tolerance, Variant, ceil_div, output


def variant(name, entry, block=64, **settings):
    return Variant(
        name,
        source="lethal.cu",
        entry=entry,
        grid=lambda n: ceil_div(n, block),
        block=block,
        args=("out", "a", "n"),
        **settings,
    )


benchmark = Benchmark(
    axes={"n": (1000,)},
    smoke={"n": 1000},
    inputs=lambda rng, n: {"a": rng.standard_normal(n, dtype=np.float32)},
    outputs={"out": output("float32", lambda n: n)},
    reference=lambda a: a,
    tolerance=Tolerance(max=0, mean=0),
    variants=[
        variant("good", "copy"),
        variant("stray", "stray"),
        variant("crooked", "crooked"),
        variant("trap", "trap"),
        variant("greedy", "copy", shared_bytes=1 << 20),
        variant("crowded", "crowded", block=1024),
        variant("also_good", "copy"),
    ],
)
