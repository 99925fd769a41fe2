"""Sort an array in place with NumPy, which needs the CPU device: fast if it is sorted already."""

import numpy as np

from perfsvc.suite import Benchmark, Tolerance, Variant, output


def passes(arrays, stream):
    """Compare all neighbours at once, until nothing moves any more."""
    x, moved = arrays["x"], True
    while moved:
        moved = False
        for start in (0, 1):
            left, right = x[start:-1:2], x[start + 1 :: 2]
            moved |= bool((left > right).any())
            left[:], right[:] = np.minimum(left, right), np.maximum(left, right)


benchmark = Benchmark(
    axes={"n": (400,)},
    smoke={"n": 400},
    inputs=lambda rng, n: {"x": rng.permutation(n).astype("int32")},
    outputs={"x": output("int32", lambda n: n)},
    reference=lambda x: np.sort(x, kind="stable"),
    tolerance=Tolerance(max=0, mean=0),
    variants=[Variant("function", run=passes), Variant("pipeline", run=passes, kind="pipeline")],
)
