"""Tensor maps: asked of the driver by its C interface, which PyCUDA does not offer."""

import ctypes
import functools
from collections.abc import Callable

import numpy as np

from perfsvc.errors import LaunchError
from perfsvc.model import TensorMapArg

_BYTES = 128
_ALIGNMENT = 128  # of the type in CUDA 13; the driver and CUDA 12 ask for 64
_ELEMENTS = {  # CUtensorMapDataType and bytes; bytes are moved and not read, so that a sign means nothing
    "uint8": (0, 1),
    "int8": (0, 1),
    "uint16": (1, 2),
    "int16": (1, 2),
    "uint32": (2, 4),
    "int32": (3, 4),
    "uint64": (4, 8),
    "int64": (5, 8),
    "float16": (6, 2),
    "float32": (7, 4),
    "float64": (8, 8),
    "bfloat16": (9, 2),
    "tfloat32": (11, 4),
}
_SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}  # CUtensorMapSwizzle
_NOT_INTERLEAVED = 0
_FETCH_128_BYTES = 2  # CU_TENSOR_MAP_L2_PROMOTION_L2_128B: a whole line of the L2 cache
_ZEROS_OUTSIDE = 0  # CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE

Encode = Callable[..., int]
"""``cuTensorMapEncodeTiled``, or what takes its place in a test."""


def encode(address: int, arg: TensorMapArg, by: Encode | None = None) -> np.void:
    """The ``CUtensorMap`` of a matrix in device memory; raises ``LaunchError`` where the driver refuses it."""
    element, size = _ELEMENTS[arg.element]
    (rows, columns), (box_rows, box_columns) = arg.shape, arg.box
    memory = ctypes.create_string_buffer(_BYTES + _ALIGNMENT)
    start = -ctypes.addressof(memory) % _ALIGNMENT
    status = (by or _driver())(
        ctypes.c_void_p(ctypes.addressof(memory) + start),
        ctypes.c_int(element),
        ctypes.c_uint32(2),
        ctypes.c_void_p(address),
        # The driver counts from the innermost dimension outwards; the pitch of the innermost is the element.
        (ctypes.c_uint64 * 2)(columns, rows),
        (ctypes.c_uint64 * 1)(columns * size),
        (ctypes.c_uint32 * 2)(box_columns, box_rows),
        (ctypes.c_uint32 * 2)(1, 1),
        ctypes.c_int(_NOT_INTERLEAVED),
        ctypes.c_int(_SWIZZLES[arg.swizzle]),
        ctypes.c_int(_FETCH_128_BYTES),
        ctypes.c_int(_ZEROS_OUTSIDE),
    )
    if status:
        raise LaunchError(
            f"the driver refuses a tensor map of {arg.buffer!r} (CUDA error {status})",
            cure="see the limits of cuTensorMapEncodeTiled for its box and swizzle",
        )
    return np.void(memory.raw[start : start + _BYTES])


@functools.cache
def _driver() -> Encode:
    try:
        function: Encode = ctypes.CDLL("libcuda.so.1").cuTensorMapEncodeTiled
    except (OSError, AttributeError) as error:
        raise LaunchError(
            f"the driver has no tensor maps: {error}", cure="install a driver for CUDA 12.0 or newer"
        ) from error
    return function
