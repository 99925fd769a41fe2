"""y = f(x) for n floats in [0, 1), where f is a curve of four pieces: polynomials of degree 7, 32 coefficients in all.

The variants store the table of coefficients in different kinds of memory. The value of x selects the piece. With the
index ``uniform`` the values are sorted, so the threads of a warp need the same coefficients. With ``divergent`` the
values are in random order.
"""

import numpy as np

from perfsvc.suite import Benchmark, Tolerance, Variant, Work, ceil_div, f32, output

PIECES = 4
TERMS = 8
COEFFICIENTS = (np.arange(1, PIECES * TERMS + 1, dtype="float32") / (PIECES * TERMS)).reshape(PIECES, TERMS)
"""All different, so that the check notices a wrong coefficient; positive, so that no terms cancel each other."""
TABLE = {"PIECES": PIECES, "TERMS": TERMS}
BLOCK = 256


def inputs(rng, index, n):
    x = rng.random(n, dtype="float32")
    return {"x": np.sort(x) if index == "uniform" else x, "coefficients": COEFFICIENTS.copy()}


def reference(x, coefficients):
    piece = np.floor(x * PIECES).astype(int)
    t = x * PIECES - piece  # also exact in float32: the number of pieces is a power of two
    y = np.zeros_like(x)
    for k in reversed(range(TERMS)):
        y = y * t + coefficients[piece, k]
    return y


def evaluate(name, args, **more):
    """Return a variant with one thread for each value."""
    return Variant(
        name,
        source=f"{name}.cu",
        entry=f"constant_memory_{name}",
        grid=lambda n: ceil_div(n, BLOCK),
        block=BLOCK,
        args=("y", "x", *args, "n"),
        **more,
    )


benchmark = Benchmark(
    axes={"index": ("uniform", "divergent"), "n": (2**24,)},
    smoke={"index": "divergent", "n": 20_011},
    inputs=inputs,
    outputs={"y": output("float32", lambda n: n)},
    reference=reference,
    # Each term but the first takes a multiplication and an addition. All terms are positive, so each of these
    # operations adds a relative error of at most 2**-24.
    tolerance=Tolerance(max=2 * (TERMS - 1) * 2**-24, mean=2 * (TERMS - 1) * 2**-24),
    work=lambda n: Work(read_bytes=4 * n + COEFFICIENTS.nbytes, written_bytes=4 * n, flops=2 * (TERMS - 1) * n),
    relative_to="global",
    variants=[
        evaluate("global", ["coefficients"], params=TABLE),
        evaluate("constant", [], params=TABLE, constants={"coefficients": "coefficients"}),
        evaluate("argument", map(f32, COEFFICIENTS.ravel().tolist())),
    ],
)
