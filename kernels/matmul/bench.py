"""C = A B for square matrices of n x n floats in row-major order.

Each element is used n times: what counts is how often it is fetched from far away.
"""

from perfsvc.suite import Benchmark, Tolerance, Variant, Work, ceil_div, output


def inputs(rng, n):
    a, b = rng.uniform(-1.0, 1.0, (2, n, n)).astype("float32")
    return {"A": a, "B": b}


benchmark = Benchmark(
    axes={"n": (1024, 2048)},
    smoke={"n": 97},
    inputs=inputs,
    outputs={"C": output("float32", lambda n: (n, n))},
    reference=lambda A, B: A @ B,
    # The rounding of n additions grows with sqrt(n): about 1e-6 of a typical element at n=2048, its maximum over all
    # elements some five times that. One product left out is 1 / sqrt(n), 2e-2.
    tolerance=Tolerance(max=3e-5, mean=3e-6),
    work=lambda n: Work(read_bytes=8 * n * n, written_bytes=4 * n * n, flops=2 * n**3),
    variants=[
        Variant(
            "naive",
            source="naive.cu",
            entry="matmul_naive",
            grid=lambda n: (ceil_div(n, 32), ceil_div(n, 8)),
            block=(32, 8),
            args=("C", "A", "B", "n"),
        ),
        Variant(
            "tiled",
            source="tiled.cu",
            entry="matmul_tiled",
            params={"TILE": (16, 32)},
            grid=lambda n, TILE: (ceil_div(n, TILE), ceil_div(n, TILE)),
            block=lambda TILE: (TILE, TILE),
            args=("C", "A", "B", "n"),
        ),
    ],
)
