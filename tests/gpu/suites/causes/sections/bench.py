"""The same steps by one piece of code again and again, or by 64 pieces in turn: what instruction cache misses cost."""

import numpy as np

from perfsvc.suite import Benchmark, Tolerance, Variant, Work, ceil_div, output

STEPS, ROUNDS, BLOCK = 512, 32, 256


def sums(sections):
    """Return a function of the elements: 32 neighbours begin at the same section."""

    def reference(a):
        for turn in range(ROUNDS):
            section = (turn + np.arange(len(a)) // 32) % sections
            kept = 0.99**STEPS
            a = kept * a + (0.01 + 0.001 * section) * (1 - kept) / (1 - 0.99)
        return a

    return reference


def variant(name, sections):
    return Variant(
        name,
        source="sections.cu",
        entry="sections",
        params={"STEPS": STEPS, "ROUNDS": ROUNDS, "SECTIONS": sections},
        grid=lambda n: ceil_div(n, BLOCK),
        block=BLOCK,
        args=("b", "a", "n"),
        reference=sums(sections),
    )


benchmark = Benchmark(
    axes={"n": (2**18,)},
    smoke={"n": 1009},
    inputs=lambda rng, n: {"a": rng.random(n, dtype="float32")},
    outputs={"b": output("float32", lambda n: n)},
    reference=sums(1),
    tolerance=Tolerance(max=1e-4, mean=1e-4),
    work=lambda n: Work(read_bytes=4 * n, written_bytes=4 * n, flops=2 * STEPS * ROUNDS * n),
    variants=[variant("one_section", 1), variant("many_sections", 64)],
)
