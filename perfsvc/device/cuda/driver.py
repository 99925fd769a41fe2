"""Calls of the driver's C interface that PyCUDA does not have.

All calls use the context that is current in the calling thread, which is PyCUDA's.
"""

import ctypes
import functools

from perfsvc.errors import LaunchError


class DriverError(Exception):
    """A call of the driver failed; its text is like that of PyCUDA: ``cuLaunchKernelEx failed: invalid argument``."""


def call(name: str, *arguments: object) -> None:
    """Call a function of the driver; raise ``DriverError`` with the driver's message if it fails.

    Raises:
        LaunchError: the driver is too old to have the function.
    """
    try:
        function = getattr(library(), name)
    except AttributeError as error:
        raise LaunchError(f"the driver has no {name}", cure="install a driver for CUDA 12.0 or newer") from error
    status = function(*arguments)
    if status:
        text = ctypes.c_char_p()
        library().cuGetErrorString(ctypes.c_int(status), ctypes.byref(text))
        raise DriverError(f"{name} failed: {(text.value or b'').decode() or f'CUDA error {status}'}")


@functools.cache
def library() -> ctypes.CDLL:
    """Return the driver's library, which PyCUDA has loaded already."""
    return ctypes.CDLL("libcuda.so.1")
