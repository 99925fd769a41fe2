"""Looking at results where they lie, in the device's memory."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pycuda.driver as drv

from perfsvc.device.cuda.helper_kernels import HelperKernels
from perfsvc.device.helper_kernels import DIGEST, error_entry, squares_entry
from perfsvc.model import Error


class Results:
    """Fingerprints and errors of device memory, computed by kernels of our own after all that is queued on a stream."""

    def __init__(self, helper_kernels: HelperKernels, stream: Any) -> None:
        self._helper_kernels = helper_kernels
        self._stream = stream
        self._sums = drv.mem_alloc(3 * 8)

    def digest(self, address: int, nbytes: int) -> str:
        """128 bits of ``nbytes`` bytes."""
        where, size = np.uint64(address), np.uint64(nbytes)
        sums = self._answer([(DIGEST, (where, size))], np.uint64)
        return f"{nbytes:x}-{sums[0]:016x}{sums[1]:016x}"

    def error(self, address: int, dtype: str, reference: int, reference_dtype: str, count: int) -> Error | None:
        """The error of a result; None where its reference's squares are beyond what float64 adds up."""
        where, right, size = np.uint64(address), np.uint64(reference), np.uint64(count)
        launches = [
            (squares_entry(reference_dtype), (right, size)),
            (error_entry(dtype, reference_dtype), (where, right, size)),
        ]
        squares, total, largest = self._answer(launches, np.float64)
        return Error(float(largest), float(total) / count) if 0 < squares < math.inf else None

    def _answer(
        self, launches: Sequence[tuple[str, Sequence[np.generic]]], dtype: type[np.generic]
    ) -> np.ndarray[Any, Any]:
        """What kernels add to three words that begin at zero, whose address each takes as its last argument."""
        answer = np.empty(3, dtype)
        address = int(self._sums)
        drv.memset_d8_async(address, 0, answer.nbytes, self._stream)
        for entry, args in launches:
            self._helper_kernels.fill_device(self._stream, entry, *args, np.uint64(address))
        drv.memcpy_dtoh_async(answer, address, self._stream)
        self._stream.synchronize()
        return answer
