from perfsvc.suite import Benchmark, Tolerance, Variant, output, tensor_map


def inputs(rng, n):
    return {"A": rng.random((n, n), dtype="float32"), "v": rng.random(n, dtype="float32")}


def with_map(name, array="A", **fields):
    return {
        "name": name,
        "source": "../scale.cu",
        "entry": "scale",
        "grid": 1,
        "block": 64,
        "args": (tensor_map(array, **{"box": (16, 16)} | fields), "B", "n"),
    }


benchmark = Benchmark(
    axes={"n": (64, 90)},
    smoke={"n": 32},
    inputs=inputs,
    outputs={"B": output("float32", lambda n: (n, n))},
    reference=lambda A: A.T,
    tolerance=Tolerance(max=0, mean=0),
    variants=[
        Variant(**with_map("vector", "v")),  # problem: the tensor map of 'v', which is float32[32]
        Variant(**with_map("unknown", "C")),  # problem: the tensor_map buffer 'C' is not known
        Variant(**with_map("nameless", 3)),  # problem: args is (TensorMap(buffer=3
        Variant(**with_map("long", box=(257, 4))),  # problem: box of the tensor map of 'A' is (257, 4)
        Variant(**with_map("empty", box=lambda n: (0, n))),  # problem: box of the tensor map of 'A' is (0, 32)
        Variant(**with_map("edge", box=16)),  # problem: box of the tensor map of 'A' is 16
        Variant(**with_map("half", box=(16, 8.5))),  # problem: box of the tensor map of 'A' is 8.5
        Variant(**with_map("narrow", box=(16, 6))),  # problem: a row of the box of the tensor map of 'A' has 24 bytes
        Variant(**with_map("wide", swizzle=32)),  # problem: of 'A' has 64 bytes, and the swizzle 32
        Variant(**with_map("swizzle", swizzle=16)),  # problem: swizzle of the tensor map of 'A' is 16
        Variant(**with_map("element", element="bfloat")),  # problem: the tensor map of 'A' has the element 'bfloat'
        Variant(**with_map("other", element="bfloat16")),  # problem: the element 'bfloat16' and the array is float32
        Variant(**with_map("axis", box=lambda m: (m, 8))),  # problem: asks for 'm', which is no known name
    ],
)
