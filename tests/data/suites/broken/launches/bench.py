from perfsvc.suite import Benchmark, Tolerance, Variant, f32, launch, memset, output, pointer, struct


def with_launch(name, **fields):
    plain = {"source": "../scale.cu", "entry": "scale", "grid": 6, "block": 64, "args": ("y", "x", "n")}
    return {"name": name} | plain | fields


STEP = {"entry": "scale", "grid": 1, "block": 64, "args": ("y", "x", "n")}


benchmark = Benchmark(
    axes={"n": (64, 90)},
    smoke={"n": 32},
    inputs=lambda rng, n: {"x": rng.random(n, dtype="float32")},
    outputs={"y": output("float32", lambda n: n)},
    reference=lambda x: x,
    tolerance=Tolerance(max=0, mean=0),
    variants=[
        Variant(**with_launch("odd", cluster=4)),  # problem: cluster of variant 'odd' is (4, 1, 1), and the grid
        Variant(**with_launch("large", grid=64, cluster=(8, 4))),  # problem: cluster of variant 'large' has 32 blocks
        Variant(**with_launch("axis", cluster=lambda m: m)),  # problem: cluster of variant 'axis' asks for 'm', which is no
        Variant(**with_launch("words", cluster="2")),  # problem: variant 'words': cluster is '2'
        Variant(**with_launch("word", cooperative="yes")),  # problem: variant 'word': cooperative is 'yes'
        Variant(**with_launch("one", source=("../scale.cu", "gone.cu"))),  # problem: no source file 'gone.cu'
        Variant(**with_launch("none", source=())),  # problem: variant 'none' has no source
        Variant(**with_launch("statement", entry="scale<1>; int x")),  # problem: the entry is 'scale<1>; int x'
        Variant(**with_launch("brace", entry="scale<{m}>")),  # problem: variant 'brace': 'scale<{m}>' asks for 'm'
        Variant(**with_launch("empty", args=(struct(), "y"))),  # problem: variant 'empty': args is (Struct(fields=()
        Variant(**with_launch("nested", args=(struct(a=pointer(struct(y="y"))),))),  # problem: variant 'nested': args is
        Variant(**with_launch("field", args=(struct(y="y", z="z"),))),  # problem: argument 'z' is not known
        Variant(**with_launch("array", args=(struct(y=("y", f32("m"))),))),  # problem: argument 'm' is not known
        Variant("first", source="../scale.cu", steps=[launch(**STEP, programmatic=True)]),  # problem: scale is programmatic
        Variant(
            "after",
            source="../scale.cu",
            steps=[
                launch(**STEP),
                memset("y"),
                launch(**STEP, programmatic=True),  # problem: the launch of scale is programmatic, and no launch comes before it
            ],
        ),
    ],
)
