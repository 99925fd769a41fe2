"""Emptying the L2 cache of what a sample may have left in it."""

import ctypes
from typing import Any

import numpy as np
import pycuda.driver as drv

from perfsvc.device.cuda.helper_kernels import HelperKernels
from perfsvc.device.helper_kernels import EVICT

_DRIVER = ctypes.CDLL("libcuda.so.1")  # the one that PyCUDA has loaded, for a call that it has not
_LINE = 16


class Eviction:
    """Writes a buffer larger than the cache.

    That does not drive out lines which a kernel asked the cache to keep (``evict_last``): on an H100 they survive a
    write of twice the cache. ``thorough`` first writes lines that are to be kept as well, which does. It is not the
    rule, since it slows the kernel that follows by some five per cent at 10 µs (docs/decisions.md).

    Args:
        helper_kernels: our kernels.
        stream: what is queued on.
    """

    def __init__(self, helper_kernels: HelperKernels, stream: Any) -> None:
        self._helper_kernels = helper_kernels
        self._stream = stream
        self._buffer: Any = None
        self._nbytes = 0
        self.thorough = False

    def prepare(self, nbytes: int) -> None:
        """Sees to it that ``nbytes`` can be written, and makes all lines ordinary that were to be kept until now."""
        if self._nbytes < nbytes:
            self._buffer = drv.mem_alloc(nbytes)
            self._nbytes = nbytes
        _DRIVER.cuCtxResetPersistingL2Cache()  # waits for nothing and cannot be queued: once a batch has to do

    def queue(self, nbytes: int) -> None:
        """Queues the write."""
        address = int(self._buffer)
        if self.thorough:
            count = nbytes // 2 // _LINE
            self._helper_kernels.fill_device(self._stream, EVICT, np.uint64(address), np.uint64(count))
        drv.memset_d8_async(address, 0, nbytes, self._stream)
