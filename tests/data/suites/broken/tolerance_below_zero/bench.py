from perfsvc.suite import Benchmark, Tolerance, Variant, ceil_div, output


def inputs(rng, n):
    return {"x": rng.random(n)}


benchmark = Benchmark(  # problem: tolerance is Tolerance(max=-1.0, mean=0.0)
    axes={"n": (256, 1000)},
    smoke={"n": 10},
    inputs=inputs,
    outputs={"y": output("float64", lambda n: n)},
    reference=lambda x: 2 * x,
    tolerance=Tolerance(max=-1.0, mean=0.0),
    variants=[
        Variant(
            "plain",
            source="../scale.cu",
            entry="scale",
            grid=lambda n: ceil_div(n, 64),
            block=64,
            args=("y", "x", "n"),
        ),
    ],
)
