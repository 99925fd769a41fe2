"""y on one GPU = x on another GPU.

The link between the two GPUs limits the speed. The copy engines need no multiprocessor. A kernel can write to the other
GPU, or read from it.
"""

from perfsvc.suite import Benchmark, Tolerance, Variant, Work, launch, output, peer_copy


def inputs(rng, n):
    return {"x": rng.random(n, dtype="float32")}


def by_kernel(gpu):
    """Return the launch on a GPU of the kernel that copies x to y."""
    return launch(
        source="copy.cu",
        entry="peer_copy",
        grid=lambda n: min(n // 4 // 256 + 1, 2048),
        block=256,
        args=("y", "x", "n"),
        gpu=gpu,
    )


def whole_vectors(n):
    """Return whether n floats fill whole vectors of 16 bytes, which the kernel copies."""
    return n % 4 == 0


benchmark = Benchmark(
    axes={"n": (2**16, 2**26)},
    smoke={"n": 10_004},
    inputs=inputs,
    outputs={"y": output("float32", lambda n: n)},
    reference=lambda x: x,
    tolerance=Tolerance(max=0, mean=0),
    work=lambda n: Work(read_bytes=4 * n, written_bytes=4 * n, link_bytes=4 * n),
    variants=[
        Variant("one_way", gpus=2, on={"x": 0, "y": 1}, steps=[peer_copy("x", "y")]),
        # Every GPU has x and y, and copies its x to the y of the other GPU.
        Variant("both_ways", gpus=2, steps=[peer_copy("x", "y")]),
        Variant("kernel_writes", gpus=2, on={"x": 0, "y": 1}, steps=[by_kernel(gpu=0)], only=whole_vectors),
        Variant("kernel_reads", gpus=2, on={"x": 0, "y": 1}, steps=[by_kernel(gpu=1)], only=whole_vectors),
    ],
)
