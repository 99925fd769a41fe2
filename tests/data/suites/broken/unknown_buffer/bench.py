from perfsvc.suite import Benchmark, Tolerance, Variant, launch, memset, output


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
        Variant(
            "plain",
            source="../scale.cu",
            steps=[
                memset("yy"),  # problem: the memset buffer 'yy' is not known
                launch(entry="scale", grid=1, block=64, args=("y", "x", "n")),
            ],
        ),
    ],
)
