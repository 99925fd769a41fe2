from perfsvc.suite import Benchmark, Tolerance, Variant, call, output


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
        Variant(  # problem: no source file '../gone.cu'
            "gone",
            source="../gone.cu",
            run=inputs,
        ),
        Variant(  # problem: has options, and no source to compile
            "options",
            options="-O3",
            run=inputs,
        ),
        Variant(
            "step",
            steps=[call(inputs, timed=0)],  # problem: variant 'step': timed is 0
        ),
        Variant(
            "source",
            steps=[call(inputs, source="../missing.cu")],  # problem: no source file '../missing.cu'
        ),
    ],
)
