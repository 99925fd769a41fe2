"""Device memory as the arrays of libraries."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from perfsvc.dtypes import bits


@dataclass(frozen=True, slots=True)
class DeviceView:
    """Device memory for libraries (CuPy, PyTorch, Numba): ``__cuda_array_interface__``, version 3.

    The interface has no bfloat16 and float8: it describes them as integers of the same bits.
    """

    address: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """The description of the memory, for libraries."""
        return {
            "version": 3,
            "shape": self.shape,
            "typestr": bits(self.dtype).str,
            "data": (self.address, False),
            "strides": None,
            # A library that knows the stream would wait for it, and so for the blocking kernel.
            "stream": None,
        }
