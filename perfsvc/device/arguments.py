"""The arguments of a launch: checked against the kernel's parameters, packed for the driver, and tensor maps."""

import ctypes
import functools
from collections.abc import Callable, Sequence

import numpy as np

from perfsvc import elf
from perfsvc.errors import LaunchError
from perfsvc.model import TensorMapArg

ParameterLayout = tuple[tuple[int, int], ...]
"""The offset and the size in bytes of each parameter of a kernel."""


def check_arguments(kernel: str, sizes: Sequence[int], args: Sequence[np.generic]) -> None:
    """Raise ``LaunchError`` if a launch has the wrong number of arguments, or an argument of the wrong size.

    Args:
        kernel: the name of the kernel.
        sizes: the sizes of the kernel's parameters, in bytes and in order.
        args: the arguments of the launch.
    """
    if len(args) != len(sizes):
        raise LaunchError(
            f"kernel {kernel} takes {len(sizes)} arguments, and the launch has {len(args)}",
            cure="give the variant's launch the arguments of the kernel, in the kernel's order",
        )
    for number, (size, arg) in enumerate(zip(sizes, args, strict=True), start=1):
        if arg.nbytes != size:
            raise LaunchError(
                f"argument {number} of kernel {kernel} has {size} bytes, "
                f"and the launch gives it {_kind(arg)} of {arg.nbytes} bytes",
                cure="give the argument the type that the kernel declares",
            )


def _kind(arg: np.generic) -> str:
    return "a struct" if isinstance(arg, np.void) else arg.dtype.name


def parameter_layout(code: bytes, kernel: str) -> ParameterLayout | None:
    """Return the layout of a kernel's parameters; None if the binary does not contain the layout, for example PTX."""
    try:
        return elf.kernel_parameters(code, kernel)
    except ValueError:
        return None


def pack(kernel: str, layout: ParameterLayout | None, args: Sequence[np.generic]) -> bytes:
    """Return the arguments of a launch as the driver takes them: each at the offset of its parameter.

    If the layout is unknown, each argument follows the previous argument, at a multiple of its own size, as in C. The C
    layout is wrong for tensor maps, because the compiler moves all of them to the end to align them, and for structs,
    whose alignment is not known.

    Raises:
        LaunchError: the number of arguments or the size of an argument is wrong; or an argument is a tensor map or a
            struct and the layout is unknown.
    """
    if layout is None:
        if any(isinstance(arg, np.void) for arg in args):
            raise LaunchError(
                f"kernel {kernel} takes a tensor map or a struct, and PTX does not contain its offset",
                cure='compile it to a cubin: leave "-ptx" out of the options',
            )
        layout = _c_layout([arg.nbytes for arg in args])
    check_arguments(kernel, [size for _, size in layout], args)
    buffer = bytearray(sum(layout[-1]) if layout else 0)
    for (offset, size), arg in zip(layout, args, strict=True):
        buffer[offset : offset + size] = arg.tobytes()
    return bytes(buffer)


def _c_layout(sizes: Sequence[int]) -> ParameterLayout:
    """Return the layout that C gives to parameters of these sizes."""
    layout, end = [], 0
    for size in sizes:
        offset = -(-end // size) * size
        layout.append((offset, size))
        end = offset + size
    return tuple(layout)


# --- tensor maps, from the driver's C interface, because PyCUDA does not have them -----------------------------------

_BYTES = 128
_ALIGNMENT = 128  # of CUtensorMap in CUDA 13; the driver and CUDA 12 require 64
_ELEMENTS = {  # CUtensorMapDataType and size in bytes; values are moved and not interpreted, so signs do not matter
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
"""``cuTensorMapEncodeTiled``, or its replacement in a test."""


def encode_tensor_map(address: int, arg: TensorMapArg, encode: Encode | None = None) -> np.void:
    """Return the ``CUtensorMap`` of a matrix in device memory; raises ``LaunchError`` if the driver refuses it."""
    element, size = _ELEMENTS[arg.element]
    (rows, columns), (box_rows, box_columns) = arg.shape, arg.box
    memory = ctypes.create_string_buffer(_BYTES + _ALIGNMENT)
    start = -ctypes.addressof(memory) % _ALIGNMENT
    status = (encode or _driver_encode())(
        ctypes.c_void_p(ctypes.addressof(memory) + start),
        ctypes.c_int(element),
        ctypes.c_uint32(2),
        ctypes.c_void_p(address),
        # The driver counts dimensions from the innermost outwards. The innermost dimension needs no pitch.
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
def _driver_encode() -> Encode:
    """Return the driver's ``cuTensorMapEncodeTiled``; raises ``LaunchError`` if the driver does not have it."""
    try:
        encode: Encode = ctypes.CDLL("libcuda.so.1").cuTensorMapEncodeTiled
    except (OSError, AttributeError) as error:
        raise LaunchError(
            f"the driver has no tensor maps: {error}", cure="install a driver for CUDA 12.0 or newer"
        ) from error
    return encode
