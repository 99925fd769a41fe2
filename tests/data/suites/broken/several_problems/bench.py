from perfsvc.suite import Benchmark, Tolerance, Variant, call, ceil_div, i32, launch, memset, output


def inputs(rng, n):
    return {"x": rng.random(n)}


def plain(name, **fields):
    launched = {"entry": "scale", "grid": lambda n: ceil_div(n, 64), "block": 64, "args": ("y", "x", "n")}
    return {"name": name, "source": "../scale.cu"} | ({} if "steps" in fields else launched) | fields


LAUNCH = launch(entry="scale", grid=1, block=64, args=("y", "x", "n"))

benchmark = Benchmark(
    axes={"n": (256, 1000)},
    smoke={"n": 10},
    inputs=inputs,
    outputs={"y": output("float64", lambda n: n)},
    reference=lambda x: 2 * x,
    tolerance=Tolerance(max=1e-6, mean=1e-7),
    variants=[
        Variant(  # problem: argument 'w' is not known
            "unknown",
            source="../scale.cu",
            entry="scale",
            grid=lambda m: m,  # problem: grid of variant 'unknown' asks for 'm'
            block=64,
            args=("y", "w", "n"),
        ),
        Variant(**plain("plain")),
        Variant(**plain("plain")),  # problem: variant 'plain' exists already (line 31)
        Variant(**plain("sized", params={"T": (1, 2)})),
        Variant(**plain("sized-T2")),  # problem: variant 'sized-T2' exists already
        Variant(**plain("kinds", block="64", args="x")),  # problem: args is 'x' # problem: block is '64'
        Variant(**plain("block", block=(64, 32))),  # problem: block of variant 'block' has 2048 threads
        Variant(**plain("float", grid=lambda n: n / 64)),  # problem: grid of variant 'float' is 0.15625
        Variant(**plain("empty", grid=lambda n: n // 64)),  # problem: grid of variant 'empty' is (0, 1, 1) at n=10
        Variant(**plain("zero", grid=lambda n: ceil_div(n, n - 10))),  # problem: grid of variant 'zero' raised ZeroDiv
        Variant(**plain("entry", entry="scale(float)")),  # problem: the entry is 'scale(float)'
        Variant(**plain("better", formerly="plain")),  # problem: was formerly 'plain', which is still a variant
        Variant(**plain("source", source="scael.cu")),  # problem: no source file 'scael.cu'
        Variant("no_launch", source="../scale.cu", block=64),  # problem: has no entry, grid
        Variant(**plain("unused", args=("x", "n"))),  # problem: no step that uses the output 'y'
        Variant(**plain("large", args=("y", "x", i32(lambda n: n * 2**32)))),  # problem: is 42949672960: too large for int32
        Variant(**plain("fast", requires="a fast GPU")),  # problem: requires 'a fast GPU', which is not understood
        Variant(**plain("shape", reference=lambda x: x[1:])),  # problem: reference of 'y' has the shape (9,), the output is declared as (10,)
        Variant("python", run=lambda arrays, stream: None),  # problem: calls '<lambda>', which is no function of this file
        Variant("both", run=inputs, steps=[call(inputs)]),  # problem: has both steps and run
        Variant(**plain("forms"), steps=[memset("y")]),  # problem: has steps beside entry, grid, block
        Variant(**plain("buffer", steps=[memset("yy"), LAUNCH])),  # problem: the memset buffer 'yy' is not known
        Variant(**plain("input", steps=[memset("x"), LAUNCH])),  # problem: writes the input 'x'
        Variant("nowhere", steps=[launch(entry="scale", grid=1, block=64, args=("y", "n"))]),  # problem: a launch has no source
    ],
)
