"""Ten rounds of smoothing a curve: each round is a launch."""

from itertools import pairwise

import numpy as np

from perfsvc.suite import Benchmark, Tolerance, Variant, Work, ceil_div, launch, output, scratch

ROUNDS = 10


def rounds():
    """Return the launches: from x to a, from a to b, from b to a, and so on; the last one writes y."""
    names = ["x", *["a", "b"] * (ROUNDS // 2)]
    names[ROUNDS] = "y"
    return [
        launch(entry="smooth", grid=lambda n: ceil_div(n, 256), block=256, args=(target, origin, "n"))
        for origin, target in pairwise(names)
    ]


def smoothed(x):
    for _ in range(ROUNDS):
        padded = np.pad(x, 1, mode="edge")
        x = 0.25 * padded[:-2] + 0.5 * x + 0.25 * padded[2:]
    return x


def variant(name, graph):
    shared = {"a": scratch("float32", lambda n: n), "b": scratch("float32", lambda n: n)}
    return Variant(name, source="smooth.cu", scratch=shared, steps=rounds(), graph=graph)


benchmark = Benchmark(
    axes={"n": (2**16, 2**20)},
    smoke={"n": 10_007},
    inputs=lambda rng, n: {"x": rng.random(n, dtype="float32")},
    outputs={"y": output("float32", lambda n: n)},
    reference=smoothed,
    tolerance=Tolerance(max=1e-5, mean=1e-6),
    work=lambda n: Work(read_bytes=4 * n, written_bytes=4 * n, flops=4 * ROUNDS * n),
    variants=[variant("launches", False), variant("graph", True), variant("cold-steps", "cold steps")],
)
