"""C = A B for square matrices, through tiles in shared memory: bound by the multiprocessors, not by memory."""

from perfsvc.suite import Benchmark, Tolerance, Variant, Work, ceil_div, output


def inputs(rng, n):
    a, b = rng.uniform(-1.0, 1.0, (2, n, n)).astype("float32")
    return {"A": a, "B": b}


benchmark = Benchmark(
    axes={"n": (1024,)},
    smoke={"n": 97},
    inputs=inputs,
    outputs={"C": output("float32", lambda n: (n, n))},
    reference=lambda A, B: A @ B,
    tolerance=Tolerance(max=3e-5, mean=3e-6),  # rounding grows with sqrt(n); one product left out is 3e-2
    work=lambda n: Work(read_bytes=8 * n * n, written_bytes=4 * n * n, flops=2 * n**3),
    variants=[
        Variant(
            "tiled",
            source="matmul.cu",
            entry="matmul",
            params={"TILE": 32},
            grid=lambda n, TILE: (ceil_div(n, TILE), ceil_div(n, TILE)),
            block=lambda TILE: (TILE, TILE),
            args=("C", "A", "B", "n"),
        )
    ],
)
