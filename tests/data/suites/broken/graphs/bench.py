import numpy as np

from perfsvc.suite import (
    Benchmark,
    Tolerance,
    Variant,
    call,
    cupy,
    finish,
    launch,
    metric,
    output,
    program,
    torch,
)

LAUNCH = launch(source="../scale.cu", entry="scale", grid=1, block=32, args=("out", "a", "n"))


def function(a, out):
    pass


def prepare(arrays, stream):
    pass


benchmark = Benchmark(
    axes={"n": (256,)},
    smoke={"n": 10},
    inputs=lambda rng, n: {"a": np.ones(n, np.float32)},
    outputs={"out": output("float32", lambda n: n)},
    reference=lambda a: a,
    tolerance=Tolerance(max=0, mean=0),
    variants=[
        Variant("word", steps=[LAUNCH], graph="cold"),  # problem: graph is 'cold'
        Variant("number", steps=[LAUNCH], graph=1),  # problem: graph is 1
        Variant("pipeline", kind="pipeline", steps=[LAUNCH], graph=True),  # problem: is of the kind pipeline
        Variant("host", kind="host", steps=[LAUNCH], graph=True),  # problem: is of the kind host
        Variant("warm", steps=[LAUNCH], cache="warm", graph="cold steps"),  # problem: and cache='warm'
        Variant("both", steps=[LAUNCH], cache="both", graph="cold steps"),  # problem: and cache='both'
        Variant("finish", steps=[LAUNCH, finish("sum", "a", "out")], graph=True),  # problem: runs on the host
        Variant("untimed", steps=[call(prepare, timed=False), LAUNCH], graph=True),  # problem: timed=False
        Variant("torch", run=torch(function), graph=True),  # problem: torch allocates memory for its results
        Variant("cupy", run=cupy(function), graph="cold steps"),  # problem: cupy allocates memory for its results
        Variant("empty", steps=[metric("mean", "mean", "out")], graph=True),  # problem: no step to capture # problem: no step that uses the output
        Variant("program", run=program("./bench", parse="csv"), graph=True),  # problem: runs a program and has graph
    ],
)
