"""Chains of links in the L2 cache: what half the occupancy costs, and what a block more than a wave does.

On an H100 or H200 a wave is 8 blocks of 8 warps on each of 132 multiprocessors. With 16 chains a warp the grid is one
wave, with 15 it is a few blocks more.
"""

from perfsvc.suite import Benchmark, Tolerance, Variant, Work, ceil_div, output

LINKS, STEPS = 2**20, 32  # 4 MiB, more than an L1 cache holds
WARPS, WAVE = 8, 8 * 132
CHAINS = WARPS * (15 * WAVE + 15)
HALF = 55 * 1024  # of shared memory: 4 blocks fit 227 KiB


def inputs(rng, n):
    return {"next": rng.permutation(LINKS).astype("int32")}


def reference(next, n):  # noqa: A002 - what the links are called
    at = [chain % LINKS for chain in range(n)]
    for _ in range(STEPS):
        at = next[at]
    return at


def variant(name, items, shared_bytes=0):
    return Variant(
        name,
        source="chase.cu",
        entry="chase",
        params={"STEPS": STEPS, "ITEMS": items},
        grid=lambda n, ITEMS: ceil_div(n, WARPS * ITEMS),
        block=32 * WARPS,
        args=("ends", "next", "n", "links"),
        shared_bytes=shared_bytes,
    )


benchmark = Benchmark(
    points=[{"n": CHAINS, "links": LINKS}],
    smoke={"n": 1009, "links": LINKS},
    inputs=inputs,
    outputs={"ends": output("int32", lambda n: n)},
    reference=reference,
    tolerance=Tolerance(max=0.0, mean=0.0),
    work=lambda n: Work(read_bytes=4 * n * STEPS, written_bytes=4 * n),
    variants=[variant("full", 16), variant("half", 16, HALF), variant("tail", 15)],
)
