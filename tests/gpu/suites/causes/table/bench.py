"""Steps with weights from constant memory: what it costs if the threads of a warp read different addresses."""

import numpy as np

from perfsvc.suite import Benchmark, Tolerance, Variant, Work, ceil_div, output

STEPS, BLOCK = 64, 256


def weighted(neighbours):
    """Return a function of the elements and the weights."""

    def reference(a, weights):
        first = np.arange(len(a)) % BLOCK // neighbours
        for step in range(STEPS):
            a = 0.99 * a + weights[(step + first) % STEPS]
        return a

    return reference


def variant(name, neighbours):
    return Variant(
        name,
        source="table.cu",
        entry="steps",
        params={"STEPS": STEPS, "NEIGHBOURS": neighbours},
        grid=lambda n: ceil_div(n, BLOCK),
        block=BLOCK,
        args=("b", "a", "n"),
        constants={"weights": "weights"},
        reference=weighted(neighbours),
    )


benchmark = Benchmark(
    axes={"n": (2**22,)},
    smoke={"n": 10_007},
    inputs=lambda rng, n: {"a": rng.random(n, dtype="float32"), "weights": rng.random(STEPS, dtype="float32")},
    outputs={"b": output("float32", lambda n: n)},
    reference=weighted(32),
    tolerance=Tolerance(max=1e-5, mean=1e-5),
    work=lambda n: Work(read_bytes=4 * n, written_bytes=4 * n, flops=2 * STEPS * n),
    variants=[variant("same_address", 32), variant("own_address", 1)],
)
