"""Everything that a variant can say, in one benchmark."""

from perfsvc.suite import (
    Benchmark,
    Tolerance,
    Variant,
    Work,
    ceil_div,
    f32,
    finish,
    i32,
    i64,
    launch,
    memset,
    metric,
    output,
    scratch,
)


def inputs(rng, n, scale):
    return {
        "x": rng.random(n, dtype="float32"),
        "y": rng.random(n, dtype="float32"),
        "weights": rng.random(4, dtype="float32"),
        "unused": rng.integers(0, 9, n),
    }


benchmark = Benchmark(
    axes={"n": (64, 4096), "scale": (0.5, 2.0)},
    smoke={"scale": 0.5, "n": 10},
    inputs=inputs,
    outputs={"y": output("float32", lambda n: n), "sum": output("float32", 1)},
    reference=lambda x, y, weights, scale: {"y": y + scale * x * weights.sum(), "sum": x.sum()},
    tolerance=lambda n: Tolerance(max=1e-6 * n, mean=1e-7 * n),
    work=lambda n: Work(read_bytes=8 * n, written_bytes=4 * n, flops=2 * n),
    version=3,
    relative_to="full-TILE32-FAST1",
    variants=[
        Variant(
            "full",
            source="first.cu",
            params={"TILE": (16, 32), "FAST": (0, 1), "ITEMS": 4, "SPAN": lambda n: 2 if n > 100 else 1},
            options=("-use_fast_math",),
            scratch={"partials": scratch("float32", lambda n, TILE: ceil_div(n, TILE))},
            requires=("cuda", "sm_90", "n % 2 == 0"),
            only=lambda n, TILE: n >= TILE or n == 10,
            cache="warm",
            formerly="old",
            steps=[
                memset("partials", 255),
                launch(
                    entry="first",
                    grid=lambda n, TILE: ceil_div(n, TILE),
                    block=lambda TILE: (TILE, 2),
                    shared_bytes=lambda TILE: 4 * TILE,
                    args=("y", "x", "partials", "n", "scale", i64("n"), f32("scale"), i32(lambda n: n * n), i32(7)),
                    constants={"table": "weights"},
                ),
                launch(source="second.cu", entry="second", grid=(1, 2, 3), block=1, args=("x", "ITEMS")),
                launch(entry="third", grid=1, block=1),
                finish("sum", "partials", "sum"),
                metric("span", "mean", "partials"),
            ],
        ),
    ],
)
