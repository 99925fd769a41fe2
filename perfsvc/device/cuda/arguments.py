"""The arguments of a launch as the bytes that a kernel finds them in."""

import struct
from collections.abc import Sequence

import numpy as np


def packed(args: Sequence[np.generic]) -> bytes:
    """Arguments one behind the other, each at a multiple of its size.

    Tensor maps (``np.void``) come first, as ``perfsvc.suite`` sees to it. They have 128 bytes each, so that their own
    alignment, on which CUDA 12 and 13 differ, and that of what follows are kept.
    """
    maps = b"".join([arg.tobytes() for arg in args if arg.dtype.char == "V"])
    plain = [arg for arg in args if arg.dtype.char != "V"]
    # NumPy's type characters are struct's, and struct's native alignment is that of kernel arguments.
    return maps + struct.pack("@" + "".join([arg.dtype.char for arg in plain]), *plain)
