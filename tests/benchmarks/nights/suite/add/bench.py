"""c = a + b, bound by memory.

SLOWED names variants that add the first PERCENT of their elements twice, RECODED those that are other code of the same
speed.
"""

import os

from perfsvc.suite import Benchmark, Tolerance, Variant, Work, ceil_div, output


def named(variable, variant):
    return variant in os.environ.get(variable, "").split(",")


def variant(name, **more):
    percent = int(os.environ.get("PERCENT", "0")) if named("SLOWED", name) else 0
    params = {"PERCENT": percent, "RECODED": int(named("RECODED", name))}
    return Variant(name, source="add.cu", entry=name, args=("c", "a", "b", "n"), params=params, **more)


benchmark = Benchmark(
    axes={"n": (2**25,)},
    smoke={"n": 2**16},
    inputs=lambda rng, n: {"a": rng.random(n, dtype="float32"), "b": rng.random(n, dtype="float32")},
    outputs={"c": output("float32", lambda n: n)},
    reference=lambda a, b: a + b,
    tolerance=Tolerance(max=1e-6, mean=1e-7),  # one rounding to float32 is at most 6e-8
    work=lambda n: Work(read_bytes=8 * n, written_bytes=4 * n, flops=n),
    variants=[
        variant("plain", grid=2112, block=256),
        variant("small_blocks", grid=4224, block=128),
        variant("quads", grid=lambda n: ceil_div(n // 4, 256), block=256, requires="n % 4 == 0"),
    ],
)
