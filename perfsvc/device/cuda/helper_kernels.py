"""The kernels of ``perfsvc/device/helper_kernels.cu``, loaded."""

import struct
from typing import Any

import numpy as np
import pycuda.driver as drv

THREADS = 256


class HelperKernels:
    """Launches kernels of our own by name.

    Args:
        code: the compiled ``helper_kernels.cu``.
        multiprocessors: of the device, for kernels that fill it.
    """

    def __init__(self, code: bytes, multiprocessors: int) -> None:
        self._module = drv.module_from_buffer(code)
        self._kernels: dict[str, Any] = {}
        self.multiprocessors = multiprocessors

    def launch(self, stream: Any, entry: str, *args: np.generic, blocks: int = 1, threads: int = 1) -> None:
        """Queues one launch on a stream."""
        if entry not in self._kernels:
            self._kernels[entry] = self._module.get_function(entry)
        packed = struct.pack("@" + "".join([arg.dtype.char for arg in args]), *args)
        self._kernels[entry]._launch_kernel((blocks, 1, 1), (threads, 1, 1), packed, 0, stream)  # noqa: SLF001 see device.py

    def fill_device(self, stream: Any, entry: str, *args: np.generic) -> None:
        """Queues a launch of as many blocks as keep the whole device busy."""
        self.launch(stream, entry, *args, blocks=8 * self.multiprocessors, threads=THREADS)


def mapped(count: int, dtype: type[np.generic]) -> tuple[np.ndarray[Any, Any], np.uint64]:
    """Zeroed memory of the host that the device sees too: as an array, and where the device sees it."""
    array = drv.pagelocked_zeros(count, dtype, mem_flags=drv.host_alloc_flags.DEVICEMAP)
    return array, np.uint64(int(array.base.get_device_pointer()))
