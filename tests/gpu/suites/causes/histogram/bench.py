"""The weight of each hexadecimal digit, when few are common: what contended atomics cost, shared and global ones."""

import numpy as np

from perfsvc.suite import Benchmark, Tolerance, Variant, Work, launch, memset, output

KEYS, HOT, BLOCK, GRID = 16, 2, 256, 8 * 132


def inputs(rng, n):
    digits = rng.integers(0, HOT, (n, 8), dtype="uint32")
    return {"words": (digits << 4 * np.arange(8, dtype="uint32")).sum(axis=1, dtype="uint32")}


def reference(words):
    places = np.arange(8, dtype="uint32")
    digits = words[:, None] >> 4 * places & 15
    weights = np.broadcast_to(places + 2, digits.shape)
    return np.bincount(digits.ravel(), weights.ravel(), minlength=KEYS).astype("uint32")


def variant(name, entry, copies=1):
    return Variant(
        name,
        source="histogram.cu",
        params={"KEYS": KEYS, "COPIES": copies},
        steps=[memset("weights"), launch(entry=entry, grid=GRID, block=BLOCK, args=("weights", "words", "n"))],
    )


benchmark = Benchmark(
    axes={"n": (2**20,)},
    smoke={"n": 10_007},
    inputs=inputs,
    outputs={"weights": output("uint32", KEYS)},
    reference=reference,
    tolerance=Tolerance(max=0.0, mean=0.0),
    work=lambda n: Work(read_bytes=4 * n, written_bytes=4 * KEYS),
    variants=[
        variant("own_copies", "shared_weights", copies=32),
        variant("one_copy", "shared_weights"),
        variant("no_copy", "global_weights"),
    ],
)
