"""Sort an array in place: fast if it is sorted already."""

import numpy as np

from perfsvc.suite import Benchmark, Tolerance, Variant, output


def compiled(name, **options):
    """A variant of the kernel."""
    return Variant(name, source="../sort.cu", entry="in_place", grid=1, block=1, args=("x", "n"), **options)


benchmark = Benchmark(
    axes={"n": (400,)},
    smoke={"n": 400},
    inputs=lambda rng, n: {"x": rng.permutation(n).astype("int32")},
    outputs={"x": output("int32", lambda n: n)},
    reference=lambda x: np.sort(x, kind="stable"),
    tolerance=Tolerance(max=0, mean=0),
    variants=[
        compiled("kernel", cache="both"),
        compiled("graph", graph=True),
        compiled("cold_steps", graph="cold steps"),
    ],
)
