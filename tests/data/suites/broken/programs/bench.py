from perfsvc.suite import Benchmark, Variant, call, program, regex

TIME = regex(r"(?P<time_ms>[0-9.]+) ms")


def function(arrays, stream):
    pass


benchmark = Benchmark(
    axes={"n": (256, 1000)},
    smoke={"n": 10},
    variants=[
        Variant("format", run=program("./bench", parse="nvbenhc")),  # problem: parse='nvbenhc', which is no format
        Variant("folder", run=program("./bench", parse="asv")),  # problem: parse='asv', which is no format
        Variant("pattern", run=program("./bench", parse=regex("(?P<time_ms>"))),  # problem: an unusable regular
        Variant("no_time", run=program("./bench", parse=regex("[0-9]+ ms"))),  # problem: one group with the time
        Variant("group", run=program("./bench", parse=TIME, metrics="kb")),  # problem: no group for the metric 'kb'
        Variant("metric", run=program("./bench", parse="csv", metrics="time")),  # problem: a metric of perfsvc itself
        Variant("quote", run=program("./bench 'one", parse=TIME)),  # problem: No closing quotation
        Variant("empty", run=program("", parse=TIME)),  # problem: an empty command
        Variant("tool", run=program("python3 bench.py", parse=TIME)),  # problem: names no file of its own
        Variant("axis", run=program("./bench {m}", parse=TIME)),  # problem: asks for 'm', which is no known name
        Variant("brace", run=program("./bench {n", parse=TIME)),  # problem: cannot be filled
        Variant("twice", run=program("./bench", parse=TIME, files="bench")),  # problem: needs the file 'bench'
        Variant("absolute", run=program("./bench", parse=TIME, files="/etc/passwd")),  # problem: needs the file
        Variant("variable", run=program("./bench", parse=TIME, env={"A B": "1"})),  # problem: variable 'A B'
        Variant("gpu", run=program("./bench", parse=TIME, env={"CUDA_VISIBLE_DEVICES": "1"})),  # problem: sets CUDA_V
        Variant("env", run=program("./bench", parse=TIME, env={"N": 1})),  # problem: env is {'N': 1}
        Variant("limit", run=program("./bench", parse=TIME, limit_s=-1)),  # problem: limit_s is -1
        Variant("status", run=program("./bench", parse=TIME, exit_code=256)),  # problem: exit_code is 256
        Variant("parse", run=program("./bench", parse=None)),  # problem: parse is None
        Variant("kind", kind="host", run=program("./bench", parse=TIME)),  # problem: runs a program and has kind
        Variant("cache", cache="both", run=program("./bench", parse=TIME)),  # problem: runs a program and has cache
        Variant("source", source="../scale.cu", run=program("./bench", parse=TIME)),  # problem: and has source
        Variant("step", steps=[program("./bench", parse=TIME)]),  # problem: steps is [ProgramStep(
        Variant("both", steps=[call(function)], run=program("./bench", parse=TIME)),  # problem: both steps and run
        Variant("program", kind="program", run=function),  # problem: kind is 'program'
    ],
)
