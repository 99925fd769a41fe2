"""Programs that take time and no processor, as kernels on a GPU do: many of them run at once on any machine."""

from perfsvc.suite import Benchmark, Variant, program, regex

benchmark = Benchmark(
    axes={"n": range(24)},
    smoke={"n": 0},
    variants=[
        Variant("sleep", run=program("sh sleep.sh", files="sleep.sh", parse=regex(r"took (?P<time_ms>[0-9.]+) ms")))
    ],
)
