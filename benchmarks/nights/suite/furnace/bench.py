"""Matrix products of tensor cores without end: what lowers a board's clocks for whatever is measured next."""

from perfsvc.suite import Benchmark, Tolerance, Variant, Work, output

BLOCKS, BLOCK = 528, 256

benchmark = Benchmark(
    axes={"loops": (20_000, 20_001, 20_002, 20_003, 20_004, 20_005)},  # a few ms each
    smoke={"loops": 10},
    inputs=lambda rng, loops: {"a": rng.random(BLOCKS * BLOCK, dtype="float32")},
    outputs={"out": output("float32", lambda loops: BLOCKS * BLOCK)},
    reference=lambda a: a,
    tolerance=Tolerance(max=0, mean=0),
    work=lambda loops: Work(flops=loops * BLOCKS * BLOCK // 32 * 8 * 4096),
    variants=[
        Variant(
            "burn",
            source="burn.cu",
            entry="burn",
            args=("out", "a", "loops"),
            grid=BLOCKS,
            block=BLOCK,
            requires="sm_80",
        ),
    ],
)
