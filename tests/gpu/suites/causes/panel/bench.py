"""Products of bfloat16 from shared memory: what it costs if the tensor cores wait for it."""

from perfsvc.suite import Benchmark, Tolerance, Variant, Work, output

SIDE, DEPTH, ROUNDS = 128, 64, 128
SHARED_BYTES = 100 * 1024  # besides the tiles: one block a multiprocessor: no other block hides what a warp waits for


def bfloat16_bits(values):
    """The upper half of each float, cut off: NumPy has no bfloat16."""
    return (values.view("uint32") >> 16).astype("uint16")


def inputs(rng, n):
    return {name: bfloat16_bits(rng.uniform(-1.0, 1.0, (n, SIDE, DEPTH)).astype("float32")) for name in "AB"}


def reference(A, B):
    a, b = ((bits.astype("uint32") << 16).view("float32").astype("float64") for bits in (A, B))
    return ROUNDS * (a @ b.transpose(0, 2, 1))


def variant(name, ahead):
    return Variant(
        name,
        source="panel.cu",
        entry="panel",
        requires="sm_80",
        params={"ROUNDS": ROUNDS, "AHEAD": ahead},
        grid=lambda n: n,
        block=128,
        args=("C", "A", "B"),
        shared_bytes=SHARED_BYTES,
    )


benchmark = Benchmark(
    axes={"n": (132,)},
    smoke={"n": 2},
    inputs=inputs,
    outputs={"C": output("float32", lambda n: (n, SIDE, SIDE))},
    reference=reference,
    tolerance=Tolerance(max=1e-3, mean=1e-4),
    work=lambda n: Work(
        read_bytes=4 * n * SIDE * DEPTH, written_bytes=4 * n * SIDE**2, flops=2 * ROUNDS * n * SIDE**2 * DEPTH
    ),
    variants=[variant("loaded_ahead", 1), variant("loaded_at_once", 0)],
)
