from perfsvc.suite import Benchmark, Tolerance, Variant, f64, finish, i32, launch, output, scratch

KERNEL = {"source": "../scale.cu", "entry": "scale"}

benchmark = Benchmark(
    axes={"n": (64,)},
    smoke={"n": 8},
    inputs=lambda rng, n: {"x": rng.random(n)},
    outputs={"y": output("float64", 1)},
    reference=lambda x: x.sum(),
    tolerance=Tolerance(max=0, mean=0),
    variants=[
        Variant("v0", **KERNEL, grid=1, block=(1, 1, 65), args=('y',)),  # problem: block of variant 'v0' is (1, 1, 65)
        Variant("v1", **KERNEL, grid=(1, 65536), block=1, args=('y',)),  # problem: grid of variant 'v1' is (1, 65536, 1)
        Variant("v2", **KERNEL, grid=(1, 1, 1, 1), block=1, args=('y',)),  # problem: grid of variant 'v2' has 4 dimensions
        Variant("v3", **KERNEL, grid=lambda n: 'n', block=1, args=('y',)),  # problem: grid of variant 'v3' is 'n'
        Variant("v4", **KERNEL, grid=1, block=1, args=('y',), shared_bytes=lambda n: -n),  # problem: shared_bytes of variant 'v4' is -8
        Variant("v5", **KERNEL, grid=1, block=1, args=('y',), shared_bytes=lambda n: n / 2),  # problem: shared_bytes of variant 'v5' is 4.0
        Variant("v6", **KERNEL, grid=1, block=1, args=('y', f64('x'))),  # problem: argument 'x' is not known
        Variant("v7", **KERNEL, grid=1, block=1, args=('y', i32(0.5))),  # problem: an int32 argument is 0.5
        Variant("v8", **KERNEL, grid=1, block=1, args=('y', i32(lambda n: 'a'))),  # problem: an int32 argument is 'a', which no kernel takes
        Variant("v9", **KERNEL, grid=1, block=1, args=('y', 'T'), params={'T': 'float'}),  # problem: argument 'T' is 'float', which no kernel takes
        Variant("v10", **KERNEL, grid=1, block=1, args=('y',), params={'T': True}),  # problem: parameter 'T' is True
        Variant("v11", **KERNEL, grid=1, block=1, args=('y',), params={'T': ()}),  # problem: parameter 'T' has no value
        Variant("v12", **KERNEL, grid=1, block=1, args=('y',), params={'T': ('long long',)}),  # problem: parameter 'T' has the value 'long long'
        Variant("v13", **KERNEL, grid=1, block=1, args=('y',), params={'T': lambda n: None}),  # problem: parameter 'T' of variant 'v13' is None
        Variant("v14", **KERNEL, grid=1, block=1, args=('y',), params={'T': lambda m: m}),  # problem: parameter 'T' of variant 'v14' asks for 'm'
        Variant("v15", **KERNEL, grid=1, block=1, args=('y',), params={'n': 1}),  # problem: 'n' is an axis, input or output already
        Variant("v16", **KERNEL, grid=1, block=1, args=('y',), only=lambda m: m),  # problem: only of variant 'v16' asks for 'm'
        Variant("v17", **KERNEL, grid=1, block=1, args=('y',), requires='m % 4 == 0'),  # problem: requires 'm % 4 == 0', but 'm' is not known
        Variant("v18", **KERNEL, grid=1, block=1, args=('y',), requires='n % 0 == 0'),  # problem: nothing is divisible by 0
        Variant("v19", **KERNEL, grid=1, block=1, args=('y',), cache='hot'),  # problem: cache is 'hot'
        Variant("v20", **KERNEL, grid=1, block=1, args=('y',), cache='both', kind='host'),  # problem: is of the kind host and has the cache state both
        Variant("v21", **KERNEL, grid=1, block=1, args=('y',), kind='graph'),  # problem: kind is 'graph'
        Variant("v22", **KERNEL, grid=1, block=1, args=('y',), formerly='a/b'),  # problem: former name 'a/b'
        Variant("v23", **KERNEL, grid=1, block=1, args=('y',), constants={'table': 'z'}),  # problem: 'table': the buffer 'z' is not known
        Variant("v24", **KERNEL, grid=1, block=1, args=('y',), scratch={'s': scratch('f4', 0)}),  # problem: shape of 's' is (0,)
        Variant("v25", **KERNEL, grid=1, block=1, args=('y',), scratch={'x': scratch('f4', 1)}),  # problem: 'x' is an axis, input or output already
        Variant("v26", **KERNEL, grid=1, block=1, args=('y',), options="-DX='1"),  # problem: options is
        Variant("v27", steps=[launch(**KERNEL, grid=1, block=1, args=("y", "s")), finish("sum", "x", "s")], scratch={"s": scratch("f4", 2)}),  # problem: finish writes 's', which is float32[2]
    ],
)
