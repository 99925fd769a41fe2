"""Reads from random places: most reads miss the L2 cache, and some hit it."""

from perfsvc.suite import Benchmark, Tolerance, Variant, Work, output

benchmark = Benchmark(
    axes={"n": (2**24,)},
    smoke={"n": 10_007},
    inputs=lambda rng, n: {"x": rng.random(n, dtype="float32"), "index": rng.integers(0, n, n, dtype="int32")},
    outputs={"y": output("float32", lambda n: n)},
    reference=lambda x, index: x[index],
    tolerance=Tolerance(max=0.0, mean=0.0),
    work=lambda n: Work(read_bytes=8 * n, written_bytes=4 * n),
    variants=[
        Variant("plain", source="gather.cu", entry="gather", grid=1056, block=256, args=("y", "x", "index", "n"))
    ],
)
