"""Chains of links, then columns of a tile: what bank conflicts and half the occupancy cost together.

All warps of the one wave follow links first, for which half the warps take as long; then they read the tile, which bank
conflicts slow however many warps there are.
"""

import numpy as np

from perfsvc.suite import Benchmark, Tolerance, Variant, Work, ceil_div, output

LINKS, STEPS, READS = 2**20, 256, 32
WARPS, WAVE = 8, 8 * 132
HALF = 50 * 1024  # of shared memory besides the tile: 4 blocks fit 227 KiB


def inputs(rng, n):
    return {"next": rng.permutation(LINKS).astype("int32")}


def reference(next, n):  # noqa: A002 - what the links are called
    at = np.arange(n) % LINKS
    for _ in range(STEPS):
        at = next[at]
    column = at % 32
    for _ in range(READS):
        column = (column + 33 * column) % 32  # the lane of the column's number reads it
    return at + column


def variant(name, pad, shared_bytes=0):
    return Variant(
        name,
        source="latency.cu",
        entry="chase_and_read",
        params={"STEPS": STEPS, "READS": READS, "PAD": pad},
        grid=lambda n: ceil_div(n, WARPS),
        block=32 * WARPS,
        args=("ends", "next", "n", "links"),
        shared_bytes=shared_bytes,
    )


benchmark = Benchmark(
    points=[{"n": WARPS * WAVE, "links": LINKS}],
    smoke={"n": 1009, "links": LINKS},
    inputs=inputs,
    outputs={"ends": output("int32", lambda n: n)},
    reference=reference,
    tolerance=Tolerance(max=0.0, mean=0.0),
    work=lambda n: Work(read_bytes=4 * n * STEPS, written_bytes=4 * n),
    variants=[variant("padded_full", 1), variant("unpadded_half", 0, HALF)],
)
