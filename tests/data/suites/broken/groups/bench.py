from perfsvc.suite import Benchmark, Tolerance, Variant, all_reduce, finish, launch, memset, output, peer, peer_copy, torch

STEP = {"source": "../scale.cu", "entry": "scale", "grid": 1, "block": 32}

benchmark = Benchmark(
    axes={"n": (8,)},
    smoke={"n": 8},
    inputs=lambda rng, n: {"x": rng.random(n, dtype="float32")},
    outputs={"y": output("float32", lambda n: n)},
    reference=lambda x: x,
    tolerance=Tolerance(max=0, mean=0),
    variants=[
        Variant("v0", gpus=2, steps=[finish("sum", "x", "y")]),  # problem: a step that works on one GPU only
        Variant("v1", gpus=2, steps=[torch(lambda x: x)]),  # problem: a step that works on one GPU only # problem: variant 'v1': torch gets '<lambda>', which this file does not define at the top level
        Variant("v2", gpus=2, kind="pipeline", steps=[memset("y")]),  # problem: is of the kind pipeline and has gpus
        Variant("v3", gpus=0, steps=[memset("y")]),  # problem: gpus of variant 'v3' is 0
        Variant("v4", gpus=lambda n: 10**7, steps=[memset("y")]),  # problem: gpus of variant 'v4' is 10000000
        Variant("v5", gpus="both", steps=[memset("y")]),  # problem: gpus is 'both'
        Variant("v6", gpus=2, split="z", steps=[memset("y")]),  # problem: places 'z', which is no array
        Variant("v7", gpus=2, split="x", on={"x": 0}, steps=[memset("y")]),  # problem: is in split and in on
        Variant("v8", gpus=2, on={"y": 2}, steps=[memset("y")]),  # problem: on GPU 2, and uses 2 GPUs
        Variant("v9", gpus=3, split="y", steps=[memset("y")]),  # problem: 8 rows are no multiple of 3
        Variant("v10", gpus=2, on={"x": 0}, steps=[peer_copy("x", "y")]),  # problem: which is on GPU 0, to 'y', which is on every GPU
        Variant("v11", gpus=2, on={"x": 0, "y": 0}, steps=[peer_copy("x", "y")]),  # problem: which is on GPU 0, to 'y', which is on GPU 0
        Variant("v12", gpus=2, split="x", steps=[peer_copy("x", "y")]),  # problem: 'x' has 16 bytes, and 'y' has 32 bytes
        Variant("v13", gpus=2, split="x", steps=[all_reduce("x", "y")]),  # problem: 'x' has 16 bytes, and 'y' has 32 bytes
        Variant("v14", gpus=2, on={"x": 0}, steps=[all_reduce("x", "y")]),  # problem: not every GPU has both
        Variant("v15", gpus=2, on={"x": 0}, steps=[launch(**STEP, args=("y", peer("x"), "n", "gpu"))]),  # problem: an array that only GPU 0 has
        Variant("v16", gpus=2, steps=[launch(**STEP, args=("y", "x", "n", "gpu"), gpu=2)]),  # problem: on GPU 2, and uses 2 GPUs
        Variant("v17", steps=[launch(**STEP, args=("y", peer("x"), "n", "n"))]),  # problem: names another GPU and uses one GPU
        Variant("v18", steps=[peer_copy("x", "y")]),  # problem: names another GPU and uses one GPU
        Variant("v19", split="x", steps=[memset("y")]),  # problem: has split and uses one GPU
        Variant("v20", gpus=2, steps=[peer_copy("y", "x")]),  # problem: writes the input 'x'
    ],
)
