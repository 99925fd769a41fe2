"""C = A + B for matrices of rows x columns floats in row-major order.

The work is that of vector_add, with two indices. It is fast if neighbouring threads access neighbouring columns.
"""

from perfsvc.suite import Benchmark, Tolerance, Variant, Work, ceil_div, output

MOST_SIDE = 32
"""The longest side of a square block: a block can have at most 32 x 32 threads."""


def inputs(rng, rows, columns):
    shape = (rows, columns)
    return {"A": rng.random(shape, dtype="float32"), "B": rng.random(shape, dtype="float32")}


def quads(columns):
    """Return the most aligned float4 that a row of this many columns lies in, also in part."""
    return columns // 4 if columns % 4 == 0 else ceil_div(columns + 3, 4)


benchmark = Benchmark(
    points=[{"rows": MOST_SIDE, "columns": MOST_SIDE}, {"rows": 5000, "columns": 8000}],
    smoke={"rows": 147, "columns": 251},
    inputs=inputs,
    outputs={"C": output("float32", lambda rows, columns: (rows, columns))},
    reference=lambda A, B: A + B,
    tolerance=Tolerance(max=2**-24, mean=2**-24),  # one rounding to float32
    work=lambda rows, columns: Work(
        read_bytes=8 * rows * columns, written_bytes=4 * rows * columns, flops=rows * columns
    ),
    variants=[
        Variant(
            "one_block",
            source="one_block.cu",
            entry="matrix_add_one_block",
            grid=1,
            block=lambda rows, columns: (columns, rows),
            args=("C", "A", "B", "columns"),
            only=lambda rows, columns: max(rows, columns) <= MOST_SIDE,
        ),
        Variant(
            "blocks",
            source="blocks.cu",
            entry="matrix_add_blocks",
            grid=lambda rows, columns: (ceil_div(columns, 16), ceil_div(rows, 16)),
            block=(16, 16),
            args=("C", "A", "B", "rows", "columns"),
        ),
        Variant(
            "float4_rows",
            source="float4_rows.cu",
            entry="matrix_add_float4_rows",
            grid=lambda rows, columns: (ceil_div(quads(columns), 32), ceil_div(rows, 8)),
            block=(32, 8),
            args=("C", "A", "B", "rows", "columns"),
            only=lambda rows, columns: (rows, columns) != (MOST_SIDE, MOST_SIDE),
        ),
    ],
)
