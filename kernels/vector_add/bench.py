"""c = a + b, element by element.

One addition for every twelve bytes moved: nothing but memory bandwidth decides how fast this is.
"""

from perfsvc.suite import Benchmark, Tolerance, Variant, Work, ceil_div, output


def inputs(rng, n):
    return {"a": rng.random(n, dtype="float32"), "b": rng.random(n, dtype="float32")}


benchmark = Benchmark(
    axes={"n": (2**20, 2**26)},
    smoke={"n": 100_003},
    inputs=inputs,
    outputs={"c": output("float32", lambda n: n)},
    reference=lambda a, b: a + b,
    tolerance=Tolerance(max=1e-6, mean=1e-7),  # one rounding to float32 is at most 6e-8
    work=lambda n: Work(read_bytes=8 * n, written_bytes=4 * n, flops=n),
    variants=[
        Variant(
            "grid_stride",
            source="grid_stride.cu",
            entry="vector_add_grid_stride",
            params={"BLOCK": (128, 256)},
            grid=lambda n, BLOCK: min(ceil_div(n, BLOCK), 4096),
            block=lambda BLOCK: BLOCK,
            args=("c", "a", "b", "n"),
        ),
        Variant(
            "float4",
            source="float4.cu",
            entry="vector_add_float4",
            grid=lambda n: ceil_div(ceil_div(n, 4), 256),
            block=256,
            args=("c", "a", "b", "n"),
        ),
    ],
)
