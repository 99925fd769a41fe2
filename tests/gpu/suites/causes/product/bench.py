"""C = A B^T of bfloat16: what it costs not to use the tensor cores. n is a multiple of 64."""

from perfsvc.suite import Benchmark, Tolerance, Variant, Work, output


def bfloat16_bits(values):
    """The upper half of each float, cut off: NumPy has no bfloat16."""
    return (values.view("uint32") >> 16).astype("uint16")


def inputs(rng, n):
    return {name: bfloat16_bits(rng.uniform(-1.0, 1.0, (n, n)).astype("float32")) for name in "AB"}


def reference(A, B):
    a, b = ((bits.astype("uint32") << 16).view("float32").astype("float64") for bits in (A, B))
    return a @ b.T


benchmark = Benchmark(
    axes={"n": (1024,)},
    smoke={"n": 64},
    inputs=inputs,
    outputs={"C": output("float32", lambda n: (n, n))},
    reference=reference,
    tolerance=Tolerance(max=6e-5, mean=1e-5),
    work=lambda n: Work(read_bytes=4 * n * n, written_bytes=4 * n * n, flops=2 * n**3),
    variants=[
        Variant(
            "tensor",
            source="tensor.cu",
            entry="tensor",
            requires="sm_80",
            grid=lambda n: (n // 64, n // 64),
            block=128,
            args=("C", "A", "B", "n"),
        ),
        Variant(
            "fma",
            source="fma.cu",
            entry="fma_tiles",
            grid=lambda n: (n // 16, n // 16),
            block=(16, 16),
            args=("C", "A", "B", "n"),
        ),
    ],
)
