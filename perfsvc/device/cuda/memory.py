"""Copy large arrays to the GPU, and evict data from its L2 cache."""

import ctypes
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
import pycuda.driver as drv
from numpy.typing import NDArray

from perfsvc.device.cuda.helper_kernels import HelperKernels
from perfsvc.device.helper_kernels import EVICT

THREADS = 4
PIECE_BYTES = 8 << 20
PIECES = 2

_DRIVER = ctypes.CDLL("libcuda.so.1")  # the library that PyCUDA has loaded, for a call that PyCUDA does not have
_LINE_BYTES = 16


class Uploader:
    """Copies host arrays to the device: several threads fill a page-locked ring, from which the device copies.

    The driver's own copy uses one thread and reached 7.5 GB/s on the host of an H100; four threads were twice as fast.
    The ring is allocated for the first large array.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._ring: list[NDArray[np.uint8]] = []
        self._copied: list[Any] = []
        self._threads: ThreadPoolExecutor | None = None

    def upload(self, address: int, data: NDArray[Any]) -> None:
        """Queue a copy; the host array may change once this returns."""
        if data.nbytes <= PIECE_BYTES:
            drv.memcpy_htod_async(address, data, self._stream)
            return
        threads = self._threads = self._threads or ThreadPoolExecutor(THREADS, thread_name_prefix="perfsvc-upload")
        if not self._ring:
            self._ring = [drv.pagelocked_empty(PIECE_BYTES, np.uint8) for _ in range(PIECES)]
            self._copied = [drv.Event(drv.event_flags.DISABLE_TIMING) for _ in range(PIECES)]
        source = np.ndarray((data.nbytes,), np.uint8, data)
        for number, start in enumerate(range(0, data.nbytes, PIECE_BYTES)):
            piece, copied = self._ring[number % PIECES], self._copied[number % PIECES]
            part = source[start : start + PIECE_BYTES]
            copied.synchronize()
            cuts = list(pairwise(share * part.size // THREADS for share in range(THREADS + 1)))
            targets, sources = [piece[low:high] for low, high in cuts], [part[low:high] for low, high in cuts]
            list(threads.map(np.copyto, targets, sources))
            drv.memcpy_htod_async(address + start, piece[: part.size], self._stream)
            copied.record(self._stream)

    def close(self) -> None:
        """End the threads and free the ring."""
        if self._threads:
            self._threads.shutdown()
        self._ring.clear()
        self._copied.clear()


class Eviction:
    """Empties the L2 cache by writing a buffer larger than the cache.

    The write does not evict lines that a kernel asked the cache to keep (``evict_last``): on an H100 such lines survive
    a write of twice the cache's size. ``thorough`` first writes new lines with the same request, which evict the
    kernel's lines. It is off by default because it slows the following kernel by some five per cent at 10 µs.

    Args:
        helper_kernels: perfsvc's own kernels.
        stream: the stream that everything is queued on.
    """

    def __init__(self, helper_kernels: HelperKernels, stream: Any) -> None:
        self._helper_kernels = helper_kernels
        self._stream = stream
        self._buffer: Any = None
        self._nbytes = 0
        self.thorough = False

    def prepare(self, nbytes: int) -> None:
        """Allocate a buffer of ``nbytes``, and cancel all requests to keep lines in the cache."""
        if self._nbytes < nbytes:
            self._buffer = drv.mem_alloc(nbytes)
            self._nbytes = nbytes
        _DRIVER.cuCtxResetPersistingL2Cache()  # does not wait and cannot be queued, so it runs once per batch

    def queue(self, nbytes: int) -> None:
        """Queue a write of ``nbytes`` to the buffer; if ``thorough``, first a write that evicts kept lines too."""
        address = int(self._buffer)
        if self.thorough:
            count = nbytes // 2 // _LINE_BYTES
            self._helper_kernels.fill_device(self._stream, EVICT, np.uint64(address), np.uint64(count))
        drv.memset_d8_async(address, 0, nbytes, self._stream)
