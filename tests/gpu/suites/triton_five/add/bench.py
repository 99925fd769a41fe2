"""The sum of two vectors."""

from perfsvc.suite import Benchmark, Tolerance, Variant, Work, ceil_div, output, torch, triton


def inputs(rng, n):
    return {"x": rng.random(n, dtype="float32"), "y": rng.random(n, dtype="float32")}


def add(x, y):
    return x + y


benchmark = Benchmark(
    axes={"n": (2**25,)},
    smoke={"n": 10_007},
    inputs=inputs,
    outputs={"out": output("float32", lambda n: n)},
    reference=lambda x, y: x + y,
    tolerance=Tolerance(max=1e-6, mean=1e-7),
    work=lambda n: Work(read_bytes=8 * n, written_bytes=4 * n, flops=n),
    variants=[
        Variant(
            "triton",
            source="add.py",
            run=triton("add_kernel", grid=lambda n: ceil_div(n, 1024), args=("x", "y", "out", "n"), BLOCK=1024),
        ),
        Variant("torch", run=torch(add), requires="cuda"),
    ],
)
