from perfsvc.suite import Benchmark, Variant


def nothing(arrays, stream):
    return {}


benchmark = Benchmark(name="same", variants=[Variant("python", kind="host", run=nothing)])
