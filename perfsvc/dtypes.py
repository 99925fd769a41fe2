"""The dtypes that arrays can have: NumPy's numbers, and the narrow floats of GPUs, which NumPy itself lacks.

The package ml_dtypes adds bfloat16 and the float8 types to NumPy under their names. A process that imports this module
can therefore write ``np.dtype("bfloat16")`` and ``array.astype("float8_e4m3fn")``.
"""

from collections.abc import Mapping

import ml_dtypes  # noqa: F401 - importing it registers the names with NumPy
import numpy as np

NARROW: Mapping[str, str] = {"bfloat16": "uint16", "float8_e4m3fn": "uint8", "float8_e5m2": "uint8"}
"""The floats that NumPy lacks, each with the dtype of its bits. PyTorch and other libraries use the same names."""

_NUMBERS = "biufc"
_USER_DEFINED = 2  # in dtype.isbuiltin: the dtype comes from another package


def is_number(dtype: np.dtype[np.generic]) -> bool:
    """Return whether an array of this dtype can be a buffer: a NumPy number, or one of ``NARROW``."""
    return dtype.name in NARROW or (dtype.isbuiltin != _USER_DEFINED and dtype.kind in _NUMBERS)


def is_float(dtype: np.dtype[np.generic]) -> bool:
    """Return whether a dtype is a real floating-point type."""
    return dtype.name in NARROW or dtype.kind == "f"


def bits(dtype: np.dtype[np.generic]) -> np.dtype[np.generic]:
    """Return the dtype by which array interfaces describe an array: unsigned integers for the floats of ``NARROW``."""
    return np.dtype(NARROW.get(dtype.name, dtype))
