"""Arithmetic: the cost of twice as many steps, too few registers, parted warps, barriers, and few blocks."""

import numpy as np

from perfsvc.suite import Benchmark, Tolerance, Variant, Work, ceil_div, output

STEPS, ACCUMULATORS, BLOCK = 64, 64, 256


def drifted(a):
    for _ in range(STEPS):
        a = 0.99 * a + 0.01
    return a


def curbed(a):
    for _ in range(STEPS):
        a = a - 0.01 * a * a
    return a


def either(a):
    return np.where(np.arange(len(a)) // 32 % 2, curbed(a), drifted(a))


def sums(a):
    return sum(drifted(a + k) for k in range(ACCUMULATORS))


def variant(name, entry, reference=curbed, options="", *, block=BLOCK, grid=None, **params):
    return Variant(
        name,
        source="arithmetic.cu",
        entry=entry,
        params={"STEPS": STEPS, "ACCUMULATORS": ACCUMULATORS, "TIMES": 1, "PARTED": 0, "TOGETHER": 0, **params},
        grid=grid or (lambda n: ceil_div(n, block)),
        block=block,
        args=("b", "a", "n"),
        reference=reference,
        options=options,
    )


benchmark = Benchmark(
    axes={"n": (2**22,)},
    smoke={"n": 64 * 157},
    inputs=lambda rng, n: {"a": rng.random(n, dtype="float32")},
    outputs={"b": output("float32", lambda n: n)},
    reference=curbed,
    tolerance=Tolerance(max=1e-5, mean=1e-6),
    work=lambda n: Work(read_bytes=4 * n, written_bytes=4 * n, flops=3 * STEPS * n),
    variants=[
        variant("once", "steps"),
        variant("twice", "steps", TIMES=2),
        variant("once_more", "renamed"),
        variant("many_blocks", "looped", grid=16 * 132),
        variant("few_blocks", "looped", grid=32),
        variant("together", "branches", either),
        variant("parted", "branches", either, PARTED=1),
        variant("in_registers", "sums", sums),
        variant("spilled", "sums", sums, "-maxrregcount=32"),
        variant("by_itself", "turns", block=1024),
        variant("in_step", "turns", block=1024, TOGETHER=1),
    ],
)
