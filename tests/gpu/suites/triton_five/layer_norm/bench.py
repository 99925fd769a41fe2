"""Layer normalisation of the rows of a matrix."""

import numpy as np

from perfsvc.suite import Benchmark, Tolerance, Variant, Work, output, torch, triton

EPSILON = 1e-5


def inputs(rng, rows, columns):
    return {
        "x": rng.standard_normal((rows, columns), dtype="float32"),
        "weight": rng.random(columns, dtype="float32"),
        "bias": rng.random(columns, dtype="float32"),
    }


def reference(x, weight, bias):
    centred = x - x.mean(axis=1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + EPSILON) * weight + bias


def layer_norm(x, weight, bias):
    import torch.nn.functional

    return torch.nn.functional.layer_norm(x, weight.shape, weight, bias, EPSILON)


benchmark = Benchmark(
    axes={"rows": (8192,), "columns": (4096,)},
    smoke={"rows": 37, "columns": 1000},
    inputs=inputs,
    outputs={"y": output("float32", lambda rows, columns: (rows, columns))},
    reference=reference,
    tolerance=Tolerance(max=1e-5, mean=1e-6),
    work=lambda rows, columns: Work(
        read_bytes=4 * columns * (rows + 2), written_bytes=4 * rows * columns, flops=8 * rows * columns
    ),
    variants=[
        Variant(
            "triton",
            source="layer_norm.py",
            run=triton(
                "layer_norm_kernel",
                grid=lambda rows: rows,
                args=("x", "weight", "bias", "y", "columns"),
                EPSILON=EPSILON,
                BLOCK=lambda columns: 1 << (columns - 1).bit_length(),
                num_warps=8,
            ),
        ),
        Variant("torch", run=torch(layer_norm), requires="cuda"),
        Variant("compiled", run=torch(layer_norm, compile=True), requires="cuda"),
    ],
)
