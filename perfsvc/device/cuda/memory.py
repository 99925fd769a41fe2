"""Copy large arrays to the GPU, and evict data from its L2 cache."""

import ctypes
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
import pycuda.driver as drv
from numpy.typing import NDArray

THREADS = 4
PIECE_BYTES = 8 << 20
PIECES = 2

_DRIVER = ctypes.CDLL("libcuda.so.1")  # the library that PyCUDA has loaded, for a call that PyCUDA does not have


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
    """Empties the L2 cache: a write to a buffer larger than the cache evicts all lines.

    The write does not evict lines that a kernel asked the cache to keep (``evict_last``, or an access policy window):
    on an H100 such lines survive a write of twice the cache's size. So before each sample, while no kernel of the
    sample is queued, the driver first makes these lines ordinary. Nothing else in the cache changes: kernels that keep
    no lines are as fast as after the write alone (``tests/benchmarks/eviction.py``).

    Args:
        stream: the stream that everything is queued on.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._buffer: Any = None
        self._nbytes = 0

    def prepare(self, nbytes: int) -> None:
        """Allocate a buffer of ``nbytes``, and make the lines ordinary that a kernel asked the cache to keep."""
        if self._nbytes < nbytes:
            self._buffer = drv.mem_alloc(nbytes)
            self._nbytes = nbytes
        _DRIVER.cuCtxResetPersistingL2Cache()  # takes effect at once, and cannot be queued

    def queue(self, nbytes: int) -> None:
        """Queue a write of ``nbytes`` to the buffer, which ``prepare`` has allocated."""
        drv.memset_d8_async(int(self._buffer), 0, nbytes, self._stream)
