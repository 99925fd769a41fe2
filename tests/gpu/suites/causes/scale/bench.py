"""A factor, then a product: what twice the steps and strided access cost together.

All threads of the one wave compute the factor first and multiply then, so that both delays add up.
"""

from perfsvc.suite import Benchmark, Tolerance, Variant, Work, ceil_div, output

BLOCK, STEPS, STRIDE = 256, 2048, 8


def reference(a):
    factor = float(a[0])
    for _ in range(STEPS):
        factor -= 0.01 * factor * factor
    return factor * a


def variant(name, times, stride):
    return Variant(
        name,
        source="scale.cu",
        entry="factor_and_scale",
        params={"STEPS": STEPS, "TIMES": times, "STRIDE": stride},
        grid=lambda n: min(ceil_div(n, BLOCK), 8 * 132),
        block=BLOCK,
        args=("b", "a", "n"),
    )


benchmark = Benchmark(
    axes={"n": (2**24,)},
    smoke={"n": 8 * 1250},
    inputs=lambda rng, n: {"a": rng.uniform(0.5, 1.0, n).astype("float32")},
    outputs={"b": output("float32", lambda n: n)},
    reference=reference,
    tolerance=Tolerance(max=1e-5, mean=1e-5),
    work=lambda n: Work(read_bytes=4 * n, written_bytes=4 * n, flops=n),
    variants=[variant("once_in_order", 1, 1), variant("twice_strided", 2, STRIDE)],
)
