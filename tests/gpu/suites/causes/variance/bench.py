"""A rolling variance: what sums in double precision cost when the values are floats."""

import numpy as np

from perfsvc.suite import Benchmark, Tolerance, Variant, Work, ceil_div, output

WINDOW, BLOCK = 16, 256


def reference(a):
    return np.lib.stride_tricks.sliding_window_view(a, WINDOW).var(axis=1)


def variant(name, of_type):
    return Variant(
        name,
        source="variance.cu",
        entry="variance",
        params={"WINDOW": WINDOW, "TYPE": of_type},
        grid=lambda n: ceil_div(n, BLOCK),
        block=BLOCK,
        args=("b", "a", "n"),
    )


benchmark = Benchmark(
    axes={"n": (2**24,)},
    smoke={"n": 10_007},
    inputs=lambda rng, n: {"a": rng.uniform(-1.0, 1.0, n + WINDOW - 1).astype("float32")},
    outputs={"b": output("float32", lambda n: n)},
    reference=reference,
    tolerance=Tolerance(max=1e-5, mean=1e-6),
    work=lambda n: Work(read_bytes=4 * n, written_bytes=4 * n, flops=3 * WINDOW * n),
    variants=[variant("single", "float"), variant("double", "double")],
)
