"""The sum of each row of a volume of slices x rows x width floats, packed or pitched.

Packed, a row follows the one above it without a gap. Pitched, as cudaMallocPitch and cudaMalloc3D lay them out, rows
are padded to a multiple of 512 bytes. The same kernels read both layouts, with different pitches as arguments.
The variants called rows see one tall matrix of all the rows, those called slices a volume.
"""

import numpy as np

from perfsvc.suite import Benchmark, Tolerance, Variant, Work, ceil_div, i32, output

ALIGNMENT_BYTES = 512
PADDING = 1e6
"""The value of the padding: one such element in a sum cannot be overlooked."""
WARPS = 8
"""Of a block; each warp sums a row."""


def pitch(width):
    """The floats from one row of the pitched volume to the next."""
    return ceil_div(4 * width, ALIGNMENT_BYTES) * ALIGNMENT_BYTES // 4


def inputs(rng, slices, rows, width):
    # Away from zero and of one sign, so that nothing cancels.
    packed = rng.random((slices, rows, width), dtype="float32") + np.float32(0.5)
    pitched = np.full((slices, rows, pitch(width)), PADDING, "float32")
    pitched[:, :, :width] = packed
    return {"packed": packed, "pitched": pitched}


def tolerance(width):
    # Nothing cancels, so each addition rounds off 2**-24 of the sum at most: those of a lane, which has 4 elements in
    # every 128, and then the 5 of its warp.
    most = (4 * ceil_div(width, 128) + 5) * 2**-24
    return Tolerance(max=most, mean=most)


PITCHES = {"packed": lambda width: width, "pitched": pitch}
"""By layout, which is the name of the array too."""


def by_rows(name, entry, layout):
    """A variant that sees a matrix of all the rows of all slices."""
    return Variant(
        name,
        source="rows.cu",
        entry=entry,
        grid=lambda slices, rows: ceil_div(slices * rows, WARPS),
        block=(32, WARPS),
        args=("sums", layout, i32(lambda slices, rows: slices * rows), "width", i32(PITCHES[layout])),
    )


def by_slices(name, entry, layout):
    """A variant that sees slice after slice."""
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
