"""The sum of n floats, in a variant of each kind, and Python functions that do right and wrong."""

import numpy as np

from perfsvc.suite import Benchmark, Tolerance, Variant, Work, ceil_div, finish, launch, memset, output, scratch

BLOCK = 64


def inputs(rng, n):
    return {"a": rng.random(n, dtype=np.float32)}


def reference(a):
    return a.sum()


def blocks(n):
    return ceil_div(n, BLOCK)


def add_up(arrays, stream):
    arrays["total"][0] = np.asarray(arrays["a"]).sum(dtype=np.float64)


def report_latency(arrays, stream):
    add_up(arrays, stream)
    return {"latency_ms": 2.0, "buffers": len(arrays), "stream": stream}


def fail(arrays, stream):
    raise LookupError("no plan for this size")


def report_nothing(arrays, stream):
    add_up(arrays, stream)


def report_words(arrays, stream):
    add_up(arrays, stream)
    return {"latency_ms": "quick"}


def in_steps(name, kind):
    return Variant(
        name,
        kind=kind,
        source="kinds.cu",
        scratch={"partials": scratch("float32", blocks)},
        steps=[
            memset("partials"),
            launch(entry="add_to_partials", grid=blocks, block=BLOCK, args=("partials", "a", "n")),
            finish("sum", "partials", "total"),
        ],
    )


benchmark = Benchmark(
    axes={"n": (1000,)},
    smoke={"n": 1000},
    inputs=inputs,
    outputs={"total": output("float32", 1)},
    reference=reference,
    tolerance=Tolerance(max=1e-5, mean=1e-5),
    work=lambda n: Work(read_bytes=4 * n, written_bytes=4, flops=n),
    variants=[
        in_steps("steps", "kernel"),
        in_steps("whole", "pipeline"),
        Variant("python", run=add_up),
        Variant("reports", kind="host", run=report_latency),
        Variant("raises", run=fail),
        Variant("silent", kind="host", run=report_nothing),
        Variant("wordy", kind="host", run=report_words),
    ],
)
