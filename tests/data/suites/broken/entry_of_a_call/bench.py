from perfsvc.suite import Benchmark, Tolerance, Variant, ceil_div, output


def inputs(rng, n):
    return {"x": rng.random(n)}


benchmark = Benchmark(
    axes={"n": (256, 1000)},
    smoke={"n": 10},
    inputs=inputs,
    outputs={"y": output("float64", lambda n: n)},
    reference=lambda x: 2 * x,
    tolerance=Tolerance(max=1e-6, mean=1e-7),
    variants=[
        Variant(  # problem: the entry is 'scale(float)'
            "plain",
            source="../scale.cu",
            entry="scale(float)",
            grid=lambda n: ceil_div(n, 64),
            block=64,
            args=("y", "x", "n"),
        ),
    ],
)
