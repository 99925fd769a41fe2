"""The softmax of each row of a matrix: bound by memory, and sensitive to what the L2 cache holds."""

import numpy as np

from perfsvc.suite import Benchmark, Tolerance, Variant, Work, output


def softmax(x):
    shifted = np.exp(x - x.max(axis=1, keepdims=True))
    return shifted / shifted.sum(axis=1, keepdims=True)


benchmark = Benchmark(
    axes={"rows": (4096, 8192), "columns": (4096,)},
    smoke={"rows": 8, "columns": 4096},
    inputs=lambda rng, rows, columns: {"x": rng.standard_normal((rows, columns), dtype="float32")},
    outputs={"y": output("float32", lambda rows, columns: (rows, columns))},
    reference=softmax,
    tolerance=Tolerance(max=1e-5, mean=1e-6),
    work=lambda rows, columns: Work(read_bytes=4 * rows * columns, written_bytes=4 * rows * columns),
    variants=[
        Variant(
            f"threads{threads}",
            source="softmax.cu",
            entry="softmax",
            grid=lambda rows: rows,
            block=threads,
            args=("y", "x", "columns"),
        )
        for threads in (256, 512)
    ],
)
