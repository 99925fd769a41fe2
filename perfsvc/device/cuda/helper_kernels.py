"""Launch perfsvc's own kernels: digests and errors of results are computed in the GPU's memory."""

import math
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import pycuda.driver as drv

from perfsvc.device.memory import DIGEST, error_entry, squares_entry
from perfsvc.model import Error

THREADS = 256


class HelperKernels:
    """Launches perfsvc's own kernels by name.

    Args:
        code: the compiled ``helper_kernels.cu``.
        multiprocessors: the number of the device's multiprocessors, for kernels that keep all of them busy.
    """

    def __init__(self, code: bytes, multiprocessors: int) -> None:
        self._module = drv.module_from_buffer(code)
        self._kernels: dict[str, Any] = {}
        self.multiprocessors = multiprocessors

    def launch(self, stream: Any, entry: str, *args: np.generic, blocks: int = 1, threads: int = 1) -> None:
        """Queue one launch on a stream."""
        if entry not in self._kernels:
            self._kernels[entry] = self._module.get_function(entry)
        packed = struct.pack("@" + "".join([arg.dtype.char for arg in args]), *args)
        self._kernels[entry]._launch_kernel((blocks, 1, 1), (threads, 1, 1), packed, 0, stream)  # noqa: SLF001 see device.py

    def fill_device(self, stream: Any, entry: str, *args: np.generic) -> None:
        """Queue a launch with enough blocks to keep the whole device busy."""
        self.launch(stream, entry, *args, blocks=8 * self.multiprocessors, threads=THREADS)


def mapped(count: int, dtype: type[np.generic]) -> tuple[np.ndarray[Any, Any], np.uint64]:
    """Return zeroed host memory that the device can access: the array, and its address on the device."""
    array = drv.pagelocked_zeros(count, dtype, mem_flags=drv.host_alloc_flags.DEVICEMAP)
    return array, np.uint64(int(array.base.get_device_pointer()))


class Results:
    """Computes digests and errors of device memory on the GPU, after all work that is queued on a stream."""

    def __init__(self, helper_kernels: HelperKernels, stream: Any) -> None:
        self._helper_kernels = helper_kernels
        self._stream = stream
        self._sums = drv.mem_alloc(3 * 8)

    def digest(self, address: int, nbytes: int) -> str:
        """Return a 128-bit fingerprint of ``nbytes`` bytes of device memory."""
        args = (np.uint64(address), np.uint64(nbytes))
        sums = self._run([(DIGEST, args)], np.uint64)
        return f"{nbytes:x}-{sums[0]:016x}{sums[1]:016x}"

    def error(self, address: int, dtype: str, reference: int, reference_dtype: str, count: int) -> Error | None:
        """Return the error of a result; None if the sum of the reference's squares is 0 or infinite."""
        result_address, reference_address, size = np.uint64(address), np.uint64(reference), np.uint64(count)
        launches = [
            (squares_entry(reference_dtype), (reference_address, size)),
            (error_entry(dtype, reference_dtype), (result_address, reference_address, size)),
        ]
        squares, total, largest = self._run(launches, np.float64)
        return Error(float(largest), float(total) / count) if 0 < squares < math.inf else None

    def _run(
        self, launches: Sequence[tuple[str, Sequence[np.generic]]], dtype: type[np.generic]
    ) -> np.ndarray[Any, Any]:
        """Set three words of device memory to zero, run kernels that write to these words, and return the words.

        Args:
            launches: the name and the arguments of each kernel, without its last argument, the address of the words.
            dtype: the type of the words.
        """
        sums = np.empty(3, dtype)
        address = int(self._sums)
        drv.memset_d8_async(address, 0, sums.nbytes, self._stream)
        for entry, args in launches:
            self._helper_kernels.fill_device(self._stream, entry, *args, np.uint64(address))
        drv.memcpy_dtoh_async(sums, address, self._stream)
        self._stream.synchronize()
        return sums
