"""Small sines: what it costs to compute them by special functions, of which a multiprocessor has few units."""

import numpy as np

from perfsvc.suite import Benchmark, Tolerance, Variant, Work, ceil_div, output

STEPS, BLOCK = 64, 256


def reference(a):
    for _ in range(STEPS):
        a = a - 0.01 * np.sin(a)
    return a


def variant(name, special):
    return Variant(
        name,
        source="waves.cu",
        entry="waves",
        params={"STEPS": STEPS, "SPECIAL": special},
        grid=lambda n: ceil_div(n, BLOCK),
        block=BLOCK,
        args=("b", "a", "n"),
    )


benchmark = Benchmark(
    axes={"n": (2**23,)},
    smoke={"n": 10_007},
    inputs=lambda rng, n: {"a": rng.uniform(0.05, 0.1, n).astype("float32")},
    outputs={"b": output("float32", lambda n: n)},
    reference=reference,
    tolerance=Tolerance(max=2e-5, mean=1e-5),
    work=lambda n: Work(read_bytes=4 * n, written_bytes=4 * n, flops=4 * STEPS * n),
    variants=[variant("series", 0), variant("special", 1)],
)
