from perfsvc.suite import Benchmark, Tolerance, Variant


def inputs(rng, n):
    return {"x": rng.random(n)}


benchmark = Benchmark(  # problem: no outputs
    axes={"n": (256, 1000)},
    smoke={"n": 10},
    inputs=inputs,
    reference=lambda x: 2 * x,
    tolerance=Tolerance(max=1e-6, mean=1e-7),
    variants=[
        Variant(
            "python",
            run=inputs,
        ),
    ],
)
