"""The dot product of two vectors, up to the last sum: one number for each block."""

import numpy as np

from perfsvc.suite import Benchmark, Tolerance, Variant, Work, ceil_div, output

BLOCK = 256


def inputs(rng, n):  # of one sign: nothing cancels, so that the relative error says something
    return {"a": rng.random(n, dtype="float32") + 0.5, "b": rng.random(n, dtype="float32") + 0.5}


def blocks(n):
    return min(ceil_div(n, BLOCK), 1024)


def reference(a, b, n):
    products = np.zeros(ceil_div(n, blocks(n) * BLOCK) * blocks(n) * BLOCK)
    np.multiply(a, b, out=products[:n])
    return products.reshape(-1, blocks(n), BLOCK).sum(axis=(0, 2))


benchmark = Benchmark(
    axes={"n": (2**26,)},
    smoke={"n": 10_007},
    inputs=inputs,
    outputs={"sums": output("float32", blocks)},
    reference=reference,
    tolerance=Tolerance(max=1e-5, mean=1e-5),  # 256 float32 additions a thread, then 256 threads: about 1e-6, with room
    work=lambda n: Work(read_bytes=8 * n, written_bytes=4 * blocks(n), flops=2 * n),
    variants=[
        Variant(
            "blocks",
            source="dot.cu",
            entry="dot",
            params={"BLOCK": BLOCK},
            grid=blocks,
            block=BLOCK,
            args=("sums", "a", "b", "n"),
        )
    ],
)
