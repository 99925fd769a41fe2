"""The error of a result against its reference, and whether it is within the tolerance. On the host, in NumPy."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfsvc.errors import ResultError
from perfsvc.model import Error, Tolerance

CHUNK = 1 << 18
"""Elements compared at a time, so that the temporaries stay in the cache."""


ROUNDED = 2.0**-53
"""The error of an integer that differs from its reference by less than float64 can tell."""


def error_of(out: NDArray[Any], ref: NDArray[Any]) -> Error:
    """The error of ``out`` against ``ref``, two arrays of one shape with at least one element.

    An element whose reference is not finite is right only if it is the same (NaN for NaN), and infinitely wrong
    otherwise; so is a result that is not finite where the reference is. Integers are never rounded together.
    """
    flat_out, flat_ref = out.reshape(-1), ref.reshape(-1)
    chunks = [slice(start, start + CHUNK) for start in range(0, flat_ref.size, CHUNK)]
    if all((flat_out[chunk] == flat_ref[chunk]).all() for chunk in chunks):  # mostly the first one tells that it is not
        return Error(0.0, 0.0)
    rms = _rms(flat_ref)
    total, largest = 0.0, 0.0
    for chunk in chunks:
        error = _errors(flat_out[chunk], flat_ref[chunk], rms)
        total += float(error.sum())
        largest = max(largest, float(error.max()))
    return Error(largest, total / flat_ref.size)


def worst_of(out: NDArray[Any], ref: NDArray[Any]) -> int:
    """The flat index of the first element with the largest error."""
    flat_out, flat_ref = out.reshape(-1), ref.reshape(-1)
    return int(_errors(flat_out, flat_ref, _rms(flat_ref)).argmax())


def _errors(out: NDArray[Any], ref: NDArray[Any], rms: float) -> NDArray[np.float64]:
    got, wanted = _precise(out), _precise(ref)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        error = np.asarray(np.abs(got - wanted) / np.maximum(np.abs(wanted), rms), np.float64)
    if out.dtype.kind in "iu":
        error[(error == 0) & (out != ref)] = ROUNDED
    if not np.isfinite(error.max()):
        error[~np.isfinite(error)] = np.inf
        error[(got == wanted) | (np.isnan(got) & np.isnan(wanted))] = 0.0
    return error


def _precise(values: NDArray[Any]) -> NDArray[Any]:
    return values.astype(np.complex128 if values.dtype.kind == "c" else np.float64)


def _rms(values: NDArray[Any]) -> float:
    """The root of the mean square of the finite values; 0 where there are none."""
    chunks = [values[start : start + CHUNK] for start in range(0, values.size, CHUNK)]
    # einsum and not a dot product: BLAS would start threads beside what is being timed.
    plain = sum(float(np.einsum("i,i->", part, part.conj()).real) for part in map(_precise, chunks))
    if 0 < plain < np.inf:
        return float(np.sqrt(plain / values.size))
    # Something is not finite, or its square overflows or vanishes.
    sizes = np.abs(_precise(values))
    finite = sizes[np.isfinite(sizes)]
    scale = float(finite.max(initial=0.0))
    return scale * float(np.sqrt(np.mean(np.square(finite / scale)))) if scale else 0.0


def within(error: Error, tolerance: Tolerance) -> bool:
    """Whether an error is tolerated. A NaN never is."""
    return error.max <= tolerance.max and error.mean <= tolerance.mean


def wrong(name: str, out: NDArray[Any], ref: NDArray[Any], tolerance: Tolerance) -> ResultError:
    """What is to be said of a result that is beyond its tolerance."""
    return ResultError(_difference(name, out, ref, tolerance), cure=_cure(out))


def _difference(name: str, out: NDArray[Any], ref: NDArray[Any], tolerance: Tolerance) -> str:
    error = error_of(out, ref)
    index = tuple(int(i) for i in np.unravel_index(worst_of(out, ref), ref.shape))
    place = f"{name}[{', '.join(map(str, index))}]"
    return (
        f"wrong result: {place} is {out[index]:.9g}, the reference says {ref[index]:.9g} "
        f"(error maximum {error.max:.3g}, mean {error.mean:.3g}; allowed {tolerance.max:.3g} and {tolerance.mean:.3g})"
    )


def _cure(out: NDArray[Any]) -> str:
    if out.dtype.kind == "f" and np.isnan(out).any():
        share = np.isnan(out).mean()
        return f"{share:.2%} of the elements are NaN, with which outputs are poisoned: look for elements never written"
    return "correct the kernel, or the order of its args; if the error is rounding that you accept, widen the tolerance"
