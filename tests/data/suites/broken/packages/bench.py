from perfsvc.suite import Benchmark, Tolerance, Variant, cupy, f32, numba, output, torch, triton


def double(x):
    return 2 * x


def double_into(x, y, n):
    y[:] = 2 * x


def grid(n, TILE):  # problem: variant 'v2': cupy: the function asks for 'TILE', which is no known name
    return n // TILE


benchmark = Benchmark(
    axes={"n": (4096,)},
    smoke={"n": 100},
    inputs=lambda rng, n: {"x": rng.random(n, dtype="float32")},
    outputs={"y": output("float32", lambda n: n)},
    reference=lambda x: 2 * x,
    tolerance=Tolerance(max=0, mean=0),
    variants=[
        Variant("v0", run=torch(len)),  # problem: torch gets 'len', which this file does not define
        Variant("v1", run=torch(lambda a: a)),  # problem: torch gets '<lambda>', which this file does not define
        Variant("v2", run=cupy(grid)),
        Variant("v3", run=torch("double", source="add.py", args=("x",))),  # problem: add.py does not define 'double' at the top level
        Variant("v4", run=torch("add_kernel", source="add.py")),  # problem: calls 'add_kernel' of add.py and has no args
        Variant("v5", run=triton("add_kernel", source="none.py", grid=1, args=("y",))),  # problem: no source file 'none.py'
        Variant("v6", run=triton("add_kernel", source="add.cu", grid=1, args=("y",))),  # problem: variant 'v6': no source file 'add.cu' # problem: has the source 'add.cu'
        Variant("v7", run=triton(double, source="add.py", grid=1, args=("y",))),  # problem: has a source and gets <function double
        Variant("v8", run=triton("add_kernel", source="add.py", grid=1, args=("z",))),  # problem: argument 'z' is not known # problem: variant 'v8' has no step that uses the output 'y'
        Variant("v9", run=triton("add_kernel", source="add.py", grid=1, args=("x",))),  # problem: no step that uses the output 'y'
        Variant("v10", run=triton("add_kernel", source="add.py", args=("x", "y", "n"), grid=lambda TILE: TILE)),  # problem: grid of variant 'v10' asks for 'TILE', which is no known name
        Variant("v11", run=triton("add_kernel", source="add.py", args=("x", "y", "n"), grid=0)),  # problem: grid of variant 'v11' is (0,)
        Variant("v12", run=triton("add_kernel", source="add.py", args=("x", "y", "n"), grid=1, BLOCK=[1])),  # problem: BLOCK of variant 'v12' is [1]
        Variant("v13", run=triton("add_kernel", source="add.py", args=("x", "y", "n"), grid=1, configs=8)),  # problem: configs is 8
        Variant("v14", run=numba(double, grid=1, block=None, args=("y",))),  # problem: numba has a grid and no block
        Variant("v15", run=cupy(double, grid=1, args=("y",))),  # problem: cupy has a grid and no block
        Variant("v16", run=cupy(double, block=32)),  # problem: cupy has a block and no grid
        Variant("v17", run=torch(double, compile="fast")),  # problem: compile is 'fast'
        Variant("v18", run=torch(double), args=("x",)),  # problem: has run beside args
    ],
)
