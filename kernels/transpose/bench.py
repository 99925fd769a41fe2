"""b = transpose of a, for a square matrix of n x n floats in row-major order.

No arithmetic at all: what counts is that both the rows read and the rows written move in full lines.
"""

from perfsvc.suite import Benchmark, Tolerance, Variant, Work, ceil_div, output


def inputs(rng, n):
    return {"a": rng.random((n, n), dtype="float32")}


benchmark = Benchmark(
    axes={"n": (4096, 8192)},
    smoke={"n": 193},
    inputs=inputs,
    outputs={"b": output("float32", lambda n: (n, n))},
    reference=lambda a: a.T,
    tolerance=Tolerance(max=0.0, mean=0.0),  # elements are moved, never computed
    work=lambda n: Work(read_bytes=4 * n * n, written_bytes=4 * n * n),
    variants=[
        Variant(
            "naive",
            source="naive.cu",
            entry="transpose_naive",
            grid=lambda n: (ceil_div(n, 32), ceil_div(n, 8)),
            block=(32, 8),
            args=("b", "a", "n"),
        ),
        Variant(
            "tiled",
            source="tiled.cu",
            entry="transpose_tiled",
            params={"TILE": (32,), "PAD": (0, 1), "ROWS": 8},
            grid=lambda n, TILE: (ceil_div(n, TILE), ceil_div(n, TILE)),
            block=lambda TILE, ROWS: (TILE, ROWS),
            args=("b", "a", "n"),
        ),
    ],
)
