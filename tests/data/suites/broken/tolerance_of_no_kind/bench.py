from perfsvc.suite import Benchmark, Variant, ceil_div, output


def inputs(rng, n):
    return {"x": rng.random(n)}


benchmark = Benchmark(  # problem: tolerance is 1e-06
    axes={"n": (256, 1000)},
    smoke={"n": 10},
    inputs=inputs,
    outputs={"y": output("float64", lambda n: n)},
    reference=lambda x: 2 * x,
    tolerance=lambda n: 1e-6,
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
