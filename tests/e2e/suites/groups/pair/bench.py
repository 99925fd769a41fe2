"""y = 2 x, on one GPU, on two, and on three."""

from perfsvc.suite import Benchmark, Tolerance, Variant, Work, launch, output, peer, peer_copy, scratch


def twice(y, x, **fields):
    return launch(source="pair.cu", entry="twice", grid=4, block=64, args=(y, x, "n"), **fields)


def rows(y, x, **fields):
    return launch(source="pair.cu", entry="twice", grid=4, block=64, args=(y, x, "rows"), **fields)


benchmark = Benchmark(
    axes={"n": (1000, 4000)},
    smoke={"n": 100},
    inputs=lambda rng, n: {"x": rng.random(n, dtype="float32")},
    outputs={"y": output("float32", lambda n: n)},
    reference=lambda x: 2 * x,
    tolerance=Tolerance(max=0, mean=0),
    work=lambda n: Work(read_bytes=4 * n, written_bytes=4 * n, link_bytes=4 * n),
    variants=[
        Variant("alone", steps=[twice("y", "x")]),
        Variant("each", gpus=2, steps=[twice("y", "x")]),
        Variant("other", gpus=2, steps=[twice("y", peer("x"))]),
        Variant("half", gpus=2, split=("x", "y"), params={"rows": lambda n: n // 2}, steps=[rows("y", "x")]),
        Variant(
            "moved",
            gpus=2,
            on={"x": 0, "half": 0, "y": 1},
            scratch={"half": scratch("float32", lambda n: n)},
            steps=[twice("half", "x", gpu=0), peer_copy("half", "y")],
        ),
        # Only the first GPU writes its y.
        Variant("forgets", gpus=2, steps=[twice("y", "x", gpu=0)]),
        Variant("all", gpus="all", steps=[twice("y", "x")]),
        Variant("three", gpus=3, steps=[twice("y", "x")]),
    ],
)
