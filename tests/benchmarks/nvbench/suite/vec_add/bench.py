"""c = a + b: over 2^26 floats bound by memory; over 2^16 all over in a few microseconds, most of it the launch."""

from perfsvc.suite import Benchmark, Tolerance, Variant, Work, ceil_div, output

benchmark = Benchmark(
    axes={"n": (2**16, 2**26)},
    smoke={"n": 10_007},
    inputs=lambda rng, n: {"a": rng.random(n, dtype="float32"), "b": rng.random(n, dtype="float32")},
    outputs={"c": output("float32", lambda n: n)},
    reference=lambda a, b: a + b,
    tolerance=Tolerance(max=1e-6, mean=1e-7),  # one rounding to float32 is at most 6e-8
    work=lambda n: Work(read_bytes=8 * n, written_bytes=4 * n, flops=n),
    variants=[
        Variant(
            "plain",
            source="vec_add.cu",
            entry="vec_add",
            grid=lambda n: ceil_div(n, 256),
            block=256,
            args=("c", "a", "b", "n"),
        )
    ],
)
