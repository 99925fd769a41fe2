"""C = A B for matrices of bfloat16."""

from perfsvc.suite import Benchmark, Tolerance, Variant, Work, ceil_div, output, torch, triton

CONFIGS = [
    {"ROWS": 128, "COLUMNS": 128, "DEPTH": 64, "num_warps": 4, "num_stages": 4},
    {"ROWS": 128, "COLUMNS": 128, "DEPTH": 64, "num_warps": 8, "num_stages": 4},
    {"ROWS": 128, "COLUMNS": 256, "DEPTH": 64, "num_warps": 8, "num_stages": 3},
]


def inputs(rng, m, n, k):
    return {
        "A": rng.uniform(-1.0, 1.0, (m, k)).astype("bfloat16"),
        "B": rng.uniform(-1.0, 1.0, (k, n)).astype("bfloat16"),
    }


def matmul(A, B):
    return A @ B


benchmark = Benchmark(
    points=[{"m": 4096, "n": 4096, "k": 4096}],
    smoke={"m": 132, "n": 200, "k": 328},
    inputs=inputs,
    outputs={"C": output("bfloat16", lambda m, n: (m, n))},
    reference=lambda A, B: A @ B,
    tolerance=Tolerance(max=8e-3, mean=2e-3),  # bfloat16 rounds the result to 2^-9 of it
    work=lambda m, n, k: Work(read_bytes=2 * k * (m + n), written_bytes=2 * m * n, flops=2 * m * n * k),
    relative_to="torch",
    variants=[
        Variant(
            "triton",
            source="matmul.py",
            run=triton(
                "matmul_kernel",
                grid=lambda m, n, ROWS, COLUMNS: ceil_div(m, ROWS) * ceil_div(n, COLUMNS),
                args=("A", "B", "C", "m", "n", "k"),
                configs=CONFIGS,
            ),
        ),
        Variant("torch", run=torch(matmul), requires="cuda"),
    ],
)
