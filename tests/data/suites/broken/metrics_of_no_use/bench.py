from perfsvc.suite import Benchmark, Tolerance, Variant, ceil_div, launch, metric, output, scratch


def inputs(rng, n):
    return {"x": rng.random(n)}


def counting(name, *metrics):
    return Variant(
        name,
        source="../scale.cu",
        scratch={"cycles": scratch("int64", lambda n: ceil_div(n, 64))},
        steps=[
            launch(entry="scale", grid=lambda n: ceil_div(n, 64), block=64, args=("y", "x", "n")),
            *metrics,
        ],
    )


benchmark = Benchmark(
    axes={"n": (256, 1000)},
    smoke={"n": 10},
    inputs=inputs,
    outputs={"y": output("float64", lambda n: n)},
    reference=lambda x: 2 * x,
    tolerance=Tolerance(max=1e-6, mean=1e-7),
    variants=[
        counting("right", metric("cycles", "mean", "cycles")),
        counting(
            "taken",
            metric("time", "max", "cycles"),  # problem: 'time' is a metric of perfsvc itself
            metric("sm_cycles", "max", "cycles"),  # problem: 'sm_cycles' is a metric of perfsvc itself
            metric("cycles", "max", "cycles"),
            metric("cycles", "min", "cycles"),  # problem: 'cycles' exists already
        ),
        counting("named", metric("per cent", "max", "cycles")),  # problem: has the metric 'per cent'
        counting("unknown", metric("cycles", "max", "cycle")),  # problem: the metric buffer 'cycle' is not known
        counting("median", metric("cycles", "median", "cycles")),  # problem: operation is 'median'
        Variant(  # problem: variant 'read' has no step that uses the output 'y'
            "read",
            source="../scale.cu",
            steps=[launch(entry="scale", grid=1, block=64, args=("x", "x", "n")), metric("sum", "sum", "y")],
        ),
    ],
)
