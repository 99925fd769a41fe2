"""Sort a copy of an array, which is fresh at each launch."""

import numpy as np

from perfsvc.suite import Benchmark, Tolerance, Variant, output

benchmark = Benchmark(
    axes={"n": (400,)},
    smoke={"n": 400},
    inputs=lambda rng, n: {"x": rng.permutation(n).astype("int32")},
    outputs={"y": output("int32", lambda n: n)},
    reference=lambda x: np.sort(x, kind="stable"),
    tolerance=Tolerance(max=0, mean=0),
    variants=[Variant("kernel", source="../sort.cu", entry="copied", grid=1, block=1, args=("y", "x", "n"))],
)
