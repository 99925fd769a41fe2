"""Is a result right? Its error against the float64 reference, and the guard bands around every buffer."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfsvc.errors import ResultError
from perfsvc.model import Tolerance

CHUNK = 1 << 18
"""Elements compared at a time, so that the temporaries stay in the cache."""


@dataclass(frozen=True, slots=True)
class Error:
    """The error of a result: |out - ref| / max(|ref|, rms(ref)), its maximum, mean, and where the maximum is."""

    max: float
    mean: float
    worst: int  # flat index


def error_of(out: NDArray[Any], ref: NDArray[Any]) -> Error:
    """The error of ``out`` against ``ref`` (equal shapes, at least one element); anything not finite counts as inf."""
    flat_out, flat_ref = out.reshape(-1), ref.reshape(-1)
    rms = _rms(flat_ref)
    total, largest, worst = 0.0, -1.0, 0
    for start in range(0, flat_ref.size, CHUNK):
        wanted = flat_ref[start : start + CHUNK].astype(np.float64)
        got = flat_out[start : start + CHUNK].astype(np.float64)
        scale = np.maximum(np.abs(wanted), rms)
        with np.errstate(divide="ignore", invalid="ignore"):
            error = np.where(got == wanted, 0.0, np.abs(got - wanted) / scale)
        error[~np.isfinite(error)] = np.inf
        total += float(error.sum())
        at = int(error.argmax())
        if error[at] > largest:
            largest, worst = float(error[at]), start + at
    return Error(largest, total / flat_ref.size, worst)


def _rms(values: NDArray[Any]) -> float:
    total = sum(
        float(np.square(values[start : start + CHUNK].astype(np.float64)).sum())
        for start in range(0, values.size, CHUNK)
    )
    return float(np.sqrt(total / values.size))


def require_right(
    outputs: Mapping[str, NDArray[Any]], expected: Mapping[str, NDArray[Any]], tolerance: Tolerance
) -> Error:
    """Compares every expected buffer and returns the largest errors; raises ``ResultError`` beyond the tolerance."""
    worst = Error(0.0, 0.0, 0)
    for name, ref in expected.items():
        error = error_of(outputs[name], ref)
        # "not <=" and not ">": a NaN never passes.
        if not (error.max <= tolerance.max and error.mean <= tolerance.mean):
            raise ResultError(_difference(name, outputs[name], ref, error, tolerance), cure=_cure(outputs[name]))
        worst = Error(max(worst.max, error.max), max(worst.mean, error.mean), error.worst)
    return worst


def _difference(name: str, out: NDArray[Any], ref: NDArray[Any], error: Error, tolerance: Tolerance) -> str:
    index = tuple(int(i) for i in np.unravel_index(error.worst, ref.shape))
    place = f"{name}[{', '.join(map(str, index))}]"
    return (
        f"wrong result: {place} is {out[index]:.9g}, the reference says {ref[index]:.9g} "
        f"(error maximum {error.max:.3g}, mean {error.mean:.3g}; allowed {tolerance.max:.3g} and {tolerance.mean:.3g})"
    )


def _cure(out: NDArray[Any]) -> str:
    if out.dtype.kind == "f" and np.isnan(out).any():
        share = np.isnan(out).mean()
        return f"{share:.2%} of the elements are NaN: outputs are poisoned with NaN, so look for elements never written"
    return "correct the kernel; if the error is rounding that you accept, widen the benchmark's tolerance"
