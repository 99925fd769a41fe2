"""The transpose of a matrix: what bank conflicts cost, and what uncoalesced stores do."""

from perfsvc.suite import Benchmark, Tolerance, Variant, Work, ceil_div, output


def variant(name, entry, **params):
    return Variant(
        name,
        source="transpose.cu",
        entry=entry,
        params={"PAD": 1, **params},
        grid=lambda n: (ceil_div(n, 32), ceil_div(n, 32)),
        block=(32, 8),
        args=("b", "a", "n"),
    )


benchmark = Benchmark(
    axes={"n": (4096,)},
    smoke={"n": 193},
    inputs=lambda rng, n: {"a": rng.random((n, n), dtype="float32")},
    outputs={"b": output("float32", lambda n: (n, n))},
    reference=lambda a: a.T,
    tolerance=Tolerance(max=0.0, mean=0.0),
    work=lambda n: Work(read_bytes=4 * n * n, written_bytes=4 * n * n),
    variants=[variant("padded", "tiled"), variant("unpadded", "tiled", PAD=0), variant("naive", "naive")],
)
