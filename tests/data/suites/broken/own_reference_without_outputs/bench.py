from perfsvc.suite import Benchmark, Variant


def loads(arrays, stream):
    return {"load_s": 1.0}


benchmark = Benchmark(
    variants=[
        Variant("plain", kind="host", run=loads),
        Variant(  # problem: variant 'checked' has a reference, and the benchmark has no outputs
            "checked", kind="host", run=loads, reference=lambda: 1.0
        ),
    ],
)
