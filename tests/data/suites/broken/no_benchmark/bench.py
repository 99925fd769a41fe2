# problem of the file: no benchmark
from perfsvc.suite import Benchmark

benchmarks = Benchmark()
