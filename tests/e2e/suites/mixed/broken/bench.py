"""A benchmark file with two mistakes in line 5."""

from perfsvc.suite import Benchmark

benchmark = Benchmark(axes={"n": ()}, smoke={"n": 1})
