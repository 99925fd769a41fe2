"""A histogram of values of 8 bits: bound by memory, with atomic additions in shared memory."""

import numpy as np

from perfsvc.suite import Benchmark, Tolerance, Variant, Work, launch, memset, output

benchmark = Benchmark(
    axes={"n": (2**24,)},
    smoke={"n": 10_007},
    inputs=lambda rng, n: {"values": rng.integers(0, 256, n, dtype="uint32")},
    outputs={"counts": output("uint32", 256)},
    reference=lambda values: np.bincount(values, minlength=256).astype("uint32"),
    tolerance=Tolerance(max=0.0, mean=0.0),
    work=lambda n: Work(read_bytes=4 * n, written_bytes=4 * 256),
    variants=[
        Variant(
            "shared",
            source="histogram.cu",
            steps=[memset("counts"), launch(entry="histogram", grid=528, block=256, args=("counts", "values", "n"))],
        )
    ],
)
