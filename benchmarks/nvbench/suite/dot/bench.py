"""The dot product of two vectors. What the host does with the partial sums is no part of the time."""

from perfsvc.suite import Benchmark, Tolerance, Variant, Work, ceil_div, finish, launch, output, scratch

BLOCK = 256


def inputs(rng, n):  # of one sign: nothing cancels, so that the relative error says something
    return {"a": rng.random(n, dtype="float32") + 0.5, "b": rng.random(n, dtype="float32") + 0.5}


def blocks(n):
    return min(ceil_div(n, BLOCK), 1024)


benchmark = Benchmark(
    axes={"n": (2**26,)},
    smoke={"n": 10_007},
    inputs=inputs,
    outputs={"sum": output("float32", 1)},
    reference=lambda a, b: a @ b,
    tolerance=Tolerance(max=1e-5, mean=1e-5),  # 256 float32 additions a thread, then 256 threads: about 1e-6, with room
    work=lambda n: Work(read_bytes=8 * n, written_bytes=4, flops=2 * n),
    variants=[
        Variant(
            "partials",
            source="dot.cu",
            params={"BLOCK": BLOCK},
            scratch={"partials": scratch("float32", blocks)},
            steps=[
                launch(entry="dot", grid=blocks, block=BLOCK, args=("partials", "a", "b", "n")),
                finish("sum", "partials", "sum"),
            ],
        ),
    ],
)
