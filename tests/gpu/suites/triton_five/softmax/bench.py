"""Softmax of the rows of a matrix."""

import numpy as np

from perfsvc.suite import Benchmark, Tolerance, Variant, Work, output, torch, triton


def inputs(rng, rows, columns):
    return {"x": rng.standard_normal((rows, columns), dtype="float32")}


def reference(x):
    powers = np.exp(x - x.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def softmax(x):
    return x.softmax(dim=1)


benchmark = Benchmark(
    axes={"rows": (8192,), "columns": (4096,)},
    smoke={"rows": 37, "columns": 1000},
    inputs=inputs,
    outputs={"y": output("float32", lambda rows, columns: (rows, columns))},
    reference=reference,
    tolerance=Tolerance(max=1e-5, mean=1e-6),
    work=lambda rows, columns: Work(
        read_bytes=4 * rows * columns, written_bytes=4 * rows * columns, flops=5 * rows * columns
    ),
    variants=[
        Variant(
            "triton",
            source="softmax.py",
            run=triton(
                "softmax_kernel",
                grid=lambda rows: rows,
                args=("x", "y", "columns"),
                BLOCK=lambda columns: 1 << (columns - 1).bit_length(),
                num_warps=8,
            ),
        ),
        Variant("torch", run=torch(softmax), requires="cuda"),
    ],
)
