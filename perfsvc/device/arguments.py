"""The arguments of a launch against what the kernel declares."""

from collections.abc import Sequence

import numpy as np

from perfsvc.errors import LaunchError


def check(kernel: str, sizes: Sequence[int], args: Sequence[np.generic]) -> None:
    """Raises ``LaunchError`` where a launch has more or fewer arguments than the kernel, or one of another size.

    Args:
        kernel: its name.
        sizes: in bytes, of its parameters in order.
        args: what the launch gives it.
    """
    if len(args) != len(sizes):
        raise LaunchError(
            f"kernel {kernel} takes {len(sizes)} arguments, and the launch has {len(args)}",
            cure="give the variant's launch the arguments of the kernel, in its order",
        )
    for number, (size, arg) in enumerate(zip(sizes, args, strict=True), start=1):
        if arg.nbytes != size:
            raise LaunchError(
                f"argument {number} of kernel {kernel} has {size} bytes, "
                f"and the launch gives it {arg.dtype.name} of {arg.nbytes}",
                cure="give the argument the dtype that the kernel declares",
            )
