"""The forward pass of attention for several heads of bfloat16, without a mask."""

import numpy as np

from perfsvc.suite import Benchmark, Tolerance, Variant, Work, ceil_div, f64, output, torch, triton

WIDTH = 64
CONFIGS = [
    {"ROWS": rows, "COLUMNS": columns, "num_warps": warps, "num_stages": stages}
    for rows, columns, warps, stages in ((64, 64, 4, 3), (128, 64, 4, 3), (128, 64, 8, 3), (128, 128, 8, 3))
]


def inputs(rng, heads, length):
    shape = (heads, length, WIDTH)
    return {name: rng.standard_normal(shape, dtype="float32").astype("bfloat16") for name in "qkv"}


def reference(q, k, v):
    return np.stack([of_one_head(*head) for head in zip(q, k, v, strict=True)])


def of_one_head(q, k, v):
    scores = q @ k.T / np.sqrt(WIDTH)
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return powers @ v / powers.sum(axis=1, keepdims=True)


def attention(q, k, v):
    import torch.nn.functional

    return torch.nn.functional.scaled_dot_product_attention(q[None], k[None], v[None])[0]


benchmark = Benchmark(
    axes={"heads": (16,), "length": (4096,)},
    smoke={"heads": 2, "length": 200},
    inputs=inputs,
    outputs={"out": output("bfloat16", lambda heads, length: (heads, length, WIDTH))},
    reference=reference,
    tolerance=Tolerance(max=4e-2, mean=4e-3),  # bfloat16 rounds each weight and the result to 2^-9 of them
    work=lambda heads, length: Work(
        read_bytes=6 * heads * length * WIDTH,
        written_bytes=2 * heads * length * WIDTH,
        flops=4 * heads * length * length * WIDTH,
    ),
    variants=[
        Variant(
            "triton",
            source="attention.py",
            run=triton(
                "attention_kernel",
                grid=lambda heads, length, ROWS: (ceil_div(length, ROWS), heads),
                args=("q", "k", "v", "out", "length", f64(WIDTH**-0.5)),
                configs=CONFIGS,
                WIDTH=WIDTH,
            ),
        ),
        Variant("torch", run=torch(attention), requires="cuda"),
    ],
)
