"""No axes, no arrays: a function that returns its own metrics, and one that works on arrays."""

from perfsvc.suite import Benchmark, Tolerance, Variant, call, finish, output, scratch


def inputs(rng):
    return {"x": rng.integers(0, 100, 50, dtype="int32")}


def metrics(arrays, stream):
    arrays["total"][:] = arrays["x"].sum()
    return {"launches": 1.0}


def halves(arrays, stream):
    arrays["partials"][:] = arrays["x"].reshape(2, 25).sum(axis=1)


benchmark = Benchmark(
    inputs=inputs,
    outputs={"total": output("int64", 1)},
    reference=lambda x: x.sum(),
    tolerance=Tolerance(max=0, mean=0),
    variants=[
        Variant("host", kind="host", run=metrics),
        Variant(
            "pipeline",
            kind="pipeline",
            scratch={"partials": scratch("int64", 2)},
            steps=[call(halves), finish("sum", "partials", "total")],
        ),
    ],
)
