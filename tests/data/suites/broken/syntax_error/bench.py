from perfsvc.suite import Benchmark

benchmark = Benchmark(axes={"n": (1, 2})  # problem: syntax error
