"""The arguments of a launch as the bytes that a kernel finds them in."""

from collections.abc import Sequence

import numpy as np

from perfsvc import elf
from perfsvc.device import arguments
from perfsvc.errors import LaunchError

Places = tuple[tuple[int, int], ...]
"""The offset and the size in bytes of each parameter of a kernel."""


def places(code: bytes, kernel: str) -> Places | None:
    """Where a kernel finds its parameters; None where the binary does not tell, as PTX does not."""
    try:
        return elf.kernel_parameters(code, kernel)
    except ValueError:
        return None


def packed(kernel: str, found: Places | None, args: Sequence[np.generic]) -> bytes:
    """Arguments at their places, which the driver takes as they are.

    Where the places are not known, each lies behind the one before at a multiple of its size, as in C. That is not so
    with a tensor map: the compiler moves all of them back, so that the map is aligned in the memory where they end up.

    Raises:
        LaunchError: there are more or fewer arguments than parameters, or one of another size; or there is a tensor
            map, and the places are not known.
    """
    if found is None:
        if any(isinstance(arg, np.void) for arg in args):
            raise LaunchError(
                f"kernel {kernel} takes a tensor map, and PTX does not tell where",
                cure='compile it to a cubin: leave "-ptx" out of the options',
            )
        found = _in_a_row([arg.nbytes for arg in args])
    arguments.check(kernel, [size for _, size in found], args)
    buffer = bytearray(sum(found[-1]) if found else 0)
    for (offset, size), arg in zip(found, args, strict=True):
        buffer[offset : offset + size] = arg.tobytes()
    return bytes(buffer)


def _in_a_row(sizes: Sequence[int]) -> Places:
    made, end = [], 0
    for size in sizes:
        offset = -(-end // size) * size
        made.append((offset, size))
        end = offset + size
    return tuple(made)
