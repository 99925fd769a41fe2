"""The sum of each row of a volume of slices x rows x width floats, packed or pitched.

In the packed layout, rows follow each other without a gap. In the pitched layout, which cudaMallocPitch and
cudaMalloc3D use, rows are padded to a multiple of 512 bytes. The same kernels read both layouts, with different pitches
as arguments. The variants ``rows_*`` treat all rows of all slices as one matrix. The variants ``slices_*`` treat the
data as a volume.
"""

import numpy as np

from perfsvc.suite import Benchmark, Tolerance, Variant, Work, ceil_div, i32, output

ALIGNMENT_BYTES = 512
PADDING = 1e6
"""The value of the padding: large, so that the check notices a single such element in a sum."""
WARPS = 8
"""Warps of a block; each warp adds up one row."""


def pitch(width):
    """Return the number of floats from the start of a row of the pitched volume to the start of the next row."""
    return ceil_div(4 * width, ALIGNMENT_BYTES) * ALIGNMENT_BYTES // 4


def inputs(rng, slices, rows, width):
    # All values are positive, so that they do not cancel each other.
    packed = rng.random((slices, rows, width), dtype="float32") + np.float32(0.5)
    pitched = np.full((slices, rows, pitch(width)), PADDING, "float32")
    pitched[:, :, :width] = packed
    return {"packed": packed, "pitched": pitched}


def tolerance(width):
    # All values are positive, so each addition adds a relative error of at most 2**-24. A lane adds 4 of every 128
    # elements, and then its warp makes 5 additions.
    most = (4 * ceil_div(width, 128) + 5) * 2**-24
    return Tolerance(max=most, mean=most)


PITCHES = {"packed": lambda width: width, "pitched": pitch}
"""The pitch as a function of the width, by layout. The layout is also the name of the array."""


def by_rows(name, entry, layout):
    """Return a variant that treats all rows of all slices as one matrix."""
    return Variant(
        name,
        source="rows.cu",
        entry=entry,
        grid=lambda slices, rows: ceil_div(slices * rows, WARPS),
        block=(32, WARPS),
        args=("sums", layout, i32(lambda slices, rows: slices * rows), "width", i32(PITCHES[layout])),
    )


def by_slices(name, entry, layout):
    """Return a variant that treats the data as a volume of slices."""
    row_pitch = PITCHES[layout]
    return Variant(
        name,
        source="slices.cu",
        entry=entry,
        grid=lambda slices, rows: (ceil_div(rows, WARPS), slices),
        block=(32, WARPS),
        args=("sums", layout, "rows", "width", i32(row_pitch), i32(lambda rows, width: rows * row_pitch(width))),
    )


benchmark = Benchmark(
    points=[{"slices": 160, "rows": 200, "width": 1001}],
    smoke={"slices": 5, "rows": 61, "width": 389},
    inputs=inputs,
    outputs={"sums": output("float32", lambda slices, rows: (slices, rows))},
    reference=lambda packed: packed.sum(axis=2),
    tolerance=tolerance,
    work=lambda slices, rows, width: Work(
        read_bytes=4 * slices * rows * width, written_bytes=4 * slices * rows, flops=slices * rows * (width - 1)
    ),
    relative_to="rows_packed",
    variants=[
        by_rows("rows_packed", "pitched_rows", "packed"),
        by_rows("rows_pitched", "pitched_rows", "pitched"),
        by_rows("rows_pitched_float4", "pitched_rows_float4", "pitched"),
        by_slices("slices_packed", "pitched_slices", "packed"),
        by_slices("slices_pitched", "pitched_slices", "pitched"),
        by_slices("slices_pitched_float4", "pitched_slices_float4", "pitched"),
    ],
)
