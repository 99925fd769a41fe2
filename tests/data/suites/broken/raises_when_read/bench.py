from perfsvc.suite import Benchmark

SIZES = [64, 128]
benchmark = Benchmark(axes={"n": (SIZES[2],)})  # problem: reading it raised IndexError
