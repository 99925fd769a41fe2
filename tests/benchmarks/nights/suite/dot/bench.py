"""The dot products of the chunks of two vectors, bound by memory and hardly written at all. Never slowed."""

from perfsvc.suite import Benchmark, Tolerance, Variant, Work, output

CHUNK = 8192

benchmark = Benchmark(
    axes={"n": (2**25,)},
    smoke={"n": 2**16},
    inputs=lambda rng, n: {"a": rng.random(n, dtype="float32"), "b": rng.random(n, dtype="float32")},
    outputs={"sums": output("float32", lambda n: n // CHUNK)},
    reference=lambda a, b: (a * b).reshape(-1, CHUNK).sum(axis=1),
    tolerance=Tolerance(max=1e-5, mean=1e-6),  # 32 roundings in a row, and 8 of pairs
    work=lambda n: Work(read_bytes=8 * n, written_bytes=4 * n // CHUNK, flops=2 * n),
    variants=[
        Variant(
            "chunks",
            source="dot.cu",
            entry="chunks",
            args=("sums", "a", "b"),
            grid=lambda n: n // CHUNK,
            block=256,
            params={"CHUNK": CHUNK},
        )
    ],
)
