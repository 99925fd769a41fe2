"""y = 2 x as a ladder: held against a plain copy, which computes something else."""

from perfsvc.suite import Benchmark, Tolerance, Variant, Work, ceil_div, launch, metric, output, scratch


def inputs(rng, n):
    return {"x": rng.random(n, dtype="float32")}


def variant_index(name, factor, block, **more):
    return Variant(
        name,
        source="ladder.cu",
        params={"FACTOR": factor, "BLOCK": block},
        scratch={"written": scratch("int64", lambda n: ceil_div(n, block))},
        steps=[
            launch(entry="times", grid=lambda n: ceil_div(n, block), block=1, args=("y", "x", "written", "n")),
            metric("most_of_a_block", "max", "written"),
            metric("written", "sum", "written"),
        ],
        **more,
    )


benchmark = Benchmark(
    axes={"n": (1000, 2000)},
    smoke={"n": 1000},
    inputs=inputs,
    outputs={"y": output("float32", lambda n: n)},
    reference=lambda x: 2 * x,
    tolerance=Tolerance(max=0.0, mean=0.0),
    work=lambda n: Work(read_bytes=4 * n, written_bytes=4 * n),
    relative_to="copy",
    variants=[
        variant_index("one_block", 2, 4096),
        variant_index("blocks", 2, 64),
        variant_index("absent", 2, 64, requires="import perfsvc_has_no_such_part"),
        variant_index("copy", 1, 64, reference=lambda x: x),
        variant_index("mistaken", 2, 64, reference=lambda x: x),
    ],
)
