"""C = A B for float matrices in row-major order, with the rows of A and C divided between GPUs.

Each GPU computes its rows of C. For this, it needs its rows of A, and all of B.
"""

from perfsvc.suite import Benchmark, Tolerance, Variant, Work, ceil_div, i32, launch, output, peer_copy, scratch

TILE = 32


def inputs(rng, m, n, k):
    return {
        "A": rng.uniform(-1.0, 1.0, (m, k)).astype("float32"),
        "B": rng.uniform(-1.0, 1.0, (k, n)).astype("float32"),
    }


def product(B="B", gpu=None):
    """Return the launch that computes the rows of one GPU, or of every GPU, from the matrix with this name."""
    return launch(
        entry="matmul_split",
        grid=lambda m, n, gpus: (ceil_div(n, TILE), ceil_div(m // gpus, TILE)),
        block=(TILE, TILE),
        args=("C", "A", B, i32(lambda m, gpus: m // gpus), "n", "k"),
        gpu=gpu,
    )


def rows_for_two(m):
    """Return whether two GPUs can share the rows equally."""
    return m % 2 == 0


benchmark = Benchmark(
    points=[{"m": 3072, "n": 2048, "k": 2048}],
    smoke={"m": 48, "n": 37, "k": 53},
    inputs=inputs,
    outputs={"C": output("float32", lambda m, n: (m, n))},
    reference=lambda A, B: A @ B,
    # The rounding errors of k additions of random signs grow like the square root of k.
    tolerance=lambda k: Tolerance(max=k**0.5 * 2**-20, mean=k**0.5 * 2**-24),
    work=lambda m, n, k: Work(read_bytes=4 * (m * k + k * n), written_bytes=4 * m * n, flops=2 * m * n * k),
    variants=[
        Variant(
            "b_on_every_gpu",
            gpus="all",
            split=("A", "C"),
            only=rows_for_two,
            source="product.cu",
            params={"TILE": TILE},
            steps=[product()],
        ),
        # The other GPU reads each tile of B over the link.
        Variant(
            "b_on_first_gpu",
            gpus=2,
            split=("A", "C"),
            only=rows_for_two,
            on={"B": 0},
            source="product.cu",
            params={"TILE": TILE},
            steps=[product()],
        ),
        # The other GPU copies B before it begins.
        Variant(
            "b_copied",
            gpus=2,
            split=("A", "C"),
            only=rows_for_two,
            on={"B": 0, "copy": 1},
            source="product.cu",
            params={"TILE": TILE},
            scratch={"copy": scratch("float32", lambda n, k: (k, n))},
            steps=[peer_copy("B", "copy"), product(gpu=0), product("copy", gpu=1)],
        ),
    ],
)
