"""Three times an array: what strided access costs, and what twice the bytes do."""

from perfsvc.suite import Benchmark, Tolerance, Variant, Work, ceil_div, output, scratch

BLOCK, STRIDE = 256, 32


def inputs(rng, n):
    return {"a": rng.random(n, dtype="float32"), "none": rng.random(n, dtype="float32")}


def variant(name, grid, args=("b", "a", "n"), **fields):
    return Variant(
        name, source="stream.cu", entry=name, params={"STRIDE": STRIDE}, grid=grid, block=BLOCK, args=args, **fields
    )


benchmark = Benchmark(
    axes={"n": (2**24,)},
    smoke={"n": 10_007},
    inputs=inputs,
    outputs={"b": output("float32", lambda n: n)},
    reference=lambda a: 3.0 * a,
    tolerance=Tolerance(max=1e-6, mean=1e-7),
    work=lambda n: Work(read_bytes=4 * n, written_bytes=4 * n, flops=n),
    variants=[
        variant("coalesced", lambda n: min(ceil_div(n, BLOCK), 8 * 132)),
        variant("renamed", lambda n: min(ceil_div(n, BLOCK), 8 * 132)),
        variant("strided", lambda n: ceil_div(n, BLOCK * STRIDE)),
        variant(
            "doubled",
            lambda n: min(ceil_div(n, BLOCK), 8 * 132),
            ("b", "copy", "a", "none", "n"),
            scratch={"copy": scratch("float32", lambda n: n)},
        ),
    ],
)
