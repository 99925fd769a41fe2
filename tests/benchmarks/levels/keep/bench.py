"""A copy that asks the L2 cache to keep what it reads, and the same copy without the request."""

from perfsvc.suite import Benchmark, Tolerance, Variant, Work, output

benchmark = Benchmark(
    axes={"n": (2**20, 2**21, 2**22)},
    smoke={"n": 10_007},
    inputs=lambda rng, n: {"x": rng.random(n, dtype="float32")},
    outputs={"y": output("float32", lambda n: n)},
    reference=lambda x: 2 * x,
    tolerance=Tolerance(max=0.0, mean=0.0),
    work=lambda n: Work(read_bytes=4 * n, written_bytes=4 * n),
    variants=[
        Variant(entry, source="keep.cu", entry=entry, grid=1056, block=256, args=("y", "x", "n"), requires=requires)
        for entry, requires in (("plain", ()), ("keep", "sm_80"))
    ],
)
