"""b = transpose of a: element by element, through a tile whose columns share a bank, and through one whose do not."""

from perfsvc.suite import Benchmark, Tolerance, Variant, Work, ceil_div, output

TILE, ROWS = 32, 8


def transpose(name, entry, pad):
    return Variant(
        name,
        source="transpose.cu",
        entry=entry,
        params={"TILE": TILE, "ROWS": ROWS, "PAD": pad},
        grid=lambda n: (ceil_div(n, TILE), ceil_div(n, TILE)),
        block=(TILE, ROWS),
        args=("b", "a", "n"),
    )


benchmark = Benchmark(
    axes={"n": (4096,)},
    smoke={"n": 97},
    inputs=lambda rng, n: {"a": rng.random((n, n), dtype="float32")},
    outputs={"b": output("float32", lambda n: (n, n))},
    reference=lambda a: a.T,
    tolerance=Tolerance(max=0.0, mean=0.0),  # elements are moved, never computed
    work=lambda n: Work(read_bytes=4 * n * n, written_bytes=4 * n * n),
    variants=[
        transpose("naive", "transpose_naive", 0),
        transpose("tiled", "transpose_tiled", 0),
        transpose("padded", "transpose_tiled", 1),
    ],
)
