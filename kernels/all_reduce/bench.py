"""The sum of the arrays of several GPUs, on each of these GPUs.

NCCL calls this an all-reduce. The bus bandwidth is that of nccl-tests: each link has to move 2 (gpus - 1) / gpus times
the size of an array in each direction, whatever the algorithm.
"""

from perfsvc.suite import Benchmark, Tolerance, Variant, Work, all_reduce, output, peer

PAIR = 2
"""The number of GPUs of the variant ``direct``."""


def inputs(rng, n, gpus):
    return {"x": rng.random((gpus, n), dtype="float32")}  # a row for each GPU


benchmark = Benchmark(
    axes={"n": (2**16, 2**26), "gpus": (2, 4)},
    smoke={"n": 10_004, "gpus": 2},
    inputs=inputs,
    outputs={"total": output("float32", lambda n: n)},
    reference=lambda x: x.sum(axis=0),
    tolerance=Tolerance(max=2**-21, mean=2**-23),  # up to three roundings to float32
    work=lambda n, gpus: Work(
        read_bytes=4 * n * gpus,
        written_bytes=4 * n * gpus,
        flops=n * (gpus - 1),
        link_bytes=2 * (gpus - 1) * 4 * n // gpus,
    ),
    relative_to="nccl",
    variants=[
        Variant("nccl", gpus=lambda gpus: gpus, split="x", steps=[all_reduce("x", "total")]),
        Variant(
            "direct",
            gpus=lambda gpus: gpus,
            split="x",
            source="direct.cu",
            entry="all_reduce_direct",
            grid=lambda n: min(n // 4 // 256 + 1, 2048),
            block=256,
            args=("total", "x", peer("x"), "n"),
            only=lambda gpus, n: gpus == PAIR and n % 4 == 0,
        ),
    ],
)
