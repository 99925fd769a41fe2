"""b = a: the plainest way to move memory."""

from perfsvc.suite import Benchmark, Tolerance, Variant, Work, ceil_div, output

benchmark = Benchmark(
    axes={"n": (2**26,)},
    smoke={"n": 10_007},
    inputs=lambda rng, n: {"a": rng.random(n, dtype="float32")},
    outputs={"b": output("float32", lambda n: n)},
    reference=lambda a: a,
    tolerance=Tolerance(max=0.0, mean=0.0),  # elements are moved, never computed
    work=lambda n: Work(read_bytes=4 * n, written_bytes=4 * n),
    variants=[
        Variant(
            "plain", source="copy.cu", entry="copy", grid=lambda n: ceil_div(n, 256), block=256, args=("b", "a", "n")
        )
    ],
)
