from perfsvc.suite import Benchmark, Tolerance, Variant, library, output

benchmark = Benchmark(
    axes={"n": (256,)},
    smoke={"n": 10},
    inputs=lambda rng, n: {"x": rng.random(n)},
    outputs={"y": output("float64", lambda n: n)},
    reference=lambda x: x,
    tolerance=Tolerance(max=0, mean=0),
    variants=[
        Variant("v0", run=library("b.cu")),  # problem: no source file 'b.cu'
        Variant("v1", run=library("bench.py")),  # problem: calls a library in 'bench.py'
        Variant("v2", run=library("../scale.cu", entry="a b")),  # problem: the entry is 'a b'
        Variant("v3", run=library("../scale.cu", libraries="libcublas.so")),  # problem: uses the library 'libcublas.so'
        Variant("v4", run=library("../scale.cu", libraries="-lcublas")),  # problem: uses the library '-lcublas'
        Variant("v5", run=library("../scale.cu", libraries=3)),  # problem: libraries is 3
        Variant("v6", run=library("../scale.cu"), source="../scale.cu"),  # problem: has source beside library('../scale.cu')
        Variant("v7", run=library("../scale.cu"), grid=1),  # problem: has run beside grid
        Variant("v8", run=library("../scale.cu"), kind="host"),  # problem: is of the kind host and calls a library
    ],
)
