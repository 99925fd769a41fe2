"""Check the result of a case before and after its samples, on the device if possible and otherwise on the host.

The error of a result is ``|out - ref| / max(|ref|, rms(ref))``, its maximum and its mean over all elements.
"""

import contextlib
import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfsvc.device.protocol import Device
from perfsvc.dtypes import is_float
from perfsvc.errors import ResultError
from perfsvc.measure.protocol.messages import CaseJob, CheckedResult
from perfsvc.measure.protocol.shared_arrays import MappedArrays
from perfsvc.measure.worker.memory import CaseMemory, DeviceArrayCache
from perfsvc.measure.worker.program import Program
from perfsvc.model import Error, Kind, Role, Tolerance
from perfsvc.process.shared_memory import Arrays

RESULTS = (Role.OUTPUT, Role.INOUT)
PATIENCE = 2.0
PATIENCE_S = 1e-3
"""The check for work on other streams waits ``PATIENCE`` times the usual time of a sample, plus ``PATIENCE_S``."""
CHUNK = 1 << 18
"""Elements compared at a time, so that temporaries stay in the cache."""
ROUNDED = 2.0**-53
"""The error of an integer that differs from its reference by less than float64 can represent."""


class ResultCheck:
    """The checks of one case in one replica. Outputs are poisoned before each check.

    Args:
        device: where the results are.
        job: the case.
        arrays: the inputs and references of the case.
        cache: keeps the inputs and references on the device.
        memory: the buffers of the case.
        program: the steps of the case.

    Attributes:
        seconds: the time spent on checking so far.
        error: the largest error so far; None without a reference.
    """

    def __init__(  # noqa: PLR0917 it takes all parts of a case
        self,
        device: Device,
        job: CaseJob,
        arrays: MappedArrays,
        cache: DeviceArrayCache,
        memory: CaseMemory,
        program: Program,
    ) -> None:
        self._device = device
        self._job = job
        self._arrays = arrays
        self._cache = cache
        self._memory = memory
        self._program = program
        self._first: dict[str, str] = {}
        self.seconds = 0.0
        self.error: Error | None = None

    @property
    def checked(self) -> CheckedResult | None:
        """The result that passed the check before the samples, for later replicas; None without a reference."""
        return CheckedResult(self._first, self.error) if self.error else None

    def before(self) -> list[Any]:
        """Run every step once, check the result, and return what each step returned.

        Raises:
            ResultError: the result is wrong, or the case wrote where it must not.
        """
        with self._timed():
            self.load()
            inputs = self._memory.digests(Role.INPUT) if self._job.replica == 0 else {}
            returned = self._program.run()
            self._memory.require_intact_guards()
            self._require_intact(inputs)
            self._first = self._memory.digests(*RESULTS)
            checked = self._job.checked
            if checked and checked.digests == self._first:
                self.error = checked.error
            else:
                self._require_right(self._arrays.expected, "first")
        return returned

    def load(self) -> None:
        """Load the inputs of the first check again, poison the outputs, and fill the constants."""
        self._reset(self._arrays.inputs, self._arrays.expected, "first")

    def after(self, typical_s: float) -> None:
        """Check the result again after the samples, with fresh inputs if there are any.

        Args:
            typical_s: seconds that a sample takes.

        Raises:
            ResultError: the result is wrong, did not change with its inputs, or was computed on another stream.
        """
        with self._timed():
            if self._arrays.fresh_inputs:
                self._run_again(self._arrays.fresh_inputs, self._arrays.fresh_expected, "fresh")
                if self._arrays.fresh_expected:
                    self._require_right(self._arrays.fresh_expected, "fresh")
                else:
                    self._require_changed()
            if not self._arrays.fresh_expected:
                self._run_again(self._arrays.inputs, self._arrays.expected, "first")
                if self._memory.digests(*RESULTS) != self._first:  # may still be right: sums in another order differ
                    self._require_right(self._arrays.expected, "first")
            if self._program.calls and self._job.record.kind is Kind.KERNEL:
                self._require_on_stream(typical_s)

    def _run_again(self, inputs: Arrays, expected: Arrays, which: str) -> None:
        """Load the inputs, run every step, and raise ``ResultError`` if the case wrote outside its buffers."""
        self._reset(inputs, expected, which)
        self._program.run()
        self._memory.require_intact_guards()

    def _reset(self, inputs: Arrays, expected: Arrays, which: str) -> None:
        """Load the inputs, poison the outputs, and fill the constants; ``which`` is ``first`` or ``fresh``."""
        self._device.expect(expected)
        self._memory.reset(
            lambda name, address: self._cache.load(
                (self._job.array_name, which, name), inputs[name], address, self._memory.gpu(name)
            )
        )
        self._program.set_constants()

    def _require_intact(self, inputs: Mapping[str, str]) -> None:
        """Raise ``ResultError`` if an input no longer has its digest in ``inputs``; without digests, check nothing."""
        for name, digest in self._memory.digests(Role.INPUT).items() if inputs else ():
            if digest != inputs[name]:
                raise ResultError(
                    f"the case wrote to its input {name!r}",
                    cure="write only to outputs and scratch; declare an array changed in place as input and as output",
                )

    def _require_right(self, expected: Arrays, which: str) -> None:
        """Raise ``ResultError`` if an output's error exceeds the tolerance; note the largest error."""
        for name, ref in expected.items():
            error = self._error_on_device(name, ref, which) or error_of(self._memory.read(name), ref)
            if not within(error, self._job.tolerance):
                raise wrong(name, self._memory.read(name), ref, self._job.tolerance)
            self.error = _larger(self.error, error)

    def _error_on_device(self, name: str, ref: NDArray[Any], which: str) -> Error | None:
        """Return the error of an output, computed on the device; None if the device cannot compute it."""
        dtype = self._memory.array(name).dtype
        if not self._device.can_compute_error(dtype, ref.dtype.name):
            return None
        gpu = self._memory.gpu(name)
        reference = self._cache.address((self._job.array_name, which, "expected", name), ref, gpu)
        if reference is None:
            return None
        return self._device.on(gpu).error(self._memory.address(name), dtype, reference, ref.dtype.name, ref.size)

    def _require_changed(self) -> None:
        """Raise ``ResultError`` if an output for fresh inputs equals the output for the first inputs."""
        for name, digest in self._memory.digests(*RESULTS).items():
            if digest == self._first[name]:
                raise ResultError(
                    f"{name!r} did not change when the inputs did: it was not computed anew",
                    cure="do the whole work in each call; a result kept from an earlier call hides its time",
                )

    def _require_on_stream(self, typical_s: float) -> None:
        """Raise ``ResultError`` if the case changes its outputs or scratch memory while its stream is blocked."""
        self.load()
        watched = [
            (self._memory.address(name), self._memory.nbytes(name))
            for name in self._memory.names(*RESULTS, Role.SCRATCH)
        ]
        if self._device.uses_other_streams(self._program.queue, PATIENCE * typical_s + PATIENCE_S, watched):
            raise ResultError(
                "the case works on another stream than the one it was given, so its work was not timed",
                cure="queue all work on the stream that the function is called with, or set the variant's "
                "kind='pipeline'",
            )

    @contextlib.contextmanager
    def _timed(self) -> Iterator[None]:
        """Add the time of the block to ``seconds``."""
        started = time.monotonic()
        try:
            yield
        finally:
            self.seconds += time.monotonic() - started


def _larger(error: Error | None, other: Error) -> Error:
    """Return the larger maximum and the larger mean of two errors."""
    return Error(max(error.max, other.max), max(error.mean, other.mean)) if error else other


# --- errors on the host ----------------------------------------------------------------------------------------------


def error_of(out: NDArray[Any], ref: NDArray[Any]) -> Error:
    """Return the maximum and the mean of ``|out - ref| / max(|ref|, rms(ref))``, for arrays of one shape, not empty.

    If an element's reference is not finite, the error is 0 for an equal element (NaN equals NaN) and infinite for any
    other. If only the element is not finite, the error is infinite. Two different integers never have error 0, even if
    they are equal in float64.
    """
    flat_out, flat_ref = out.reshape(-1), ref.reshape(-1)
    chunks = [slice(start, start + CHUNK) for start in range(0, flat_ref.size, CHUNK)]
    # The comparison ends at the first chunk that differs, which is mostly chunk 0.
    if all((flat_out[chunk] == flat_ref[chunk]).all() for chunk in chunks):
        return Error(0.0, 0.0)
    rms = _rms(flat_ref)
    total, largest = 0.0, 0.0
    for chunk in chunks:
        error = _errors(flat_out[chunk], flat_ref[chunk], rms)
        total += float(error.sum())
        largest = max(largest, float(error.max()))
    return Error(largest, total / flat_ref.size)


def worst_of(out: NDArray[Any], ref: NDArray[Any]) -> int:
    """Return the flat index of the first element with the largest error."""
    flat_out, flat_ref = out.reshape(-1), ref.reshape(-1)
    return int(_errors(flat_out, flat_ref, _rms(flat_ref)).argmax())


def _errors(out: NDArray[Any], ref: NDArray[Any], rms: float) -> NDArray[np.float64]:
    """Return the error of each element of a part of a result; ``rms`` is the root mean square of the whole reference.

    If a value is not finite, the error is 0 for equal elements (NaN equals NaN), else infinite.
    """
    actual, expected = _precise(out), _precise(ref)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        error = np.asarray(np.abs(actual - expected) / np.maximum(np.abs(expected), rms), np.float64)
    if out.dtype.kind in "iu":
        error[(error == 0) & (out != ref)] = ROUNDED
    if not np.isfinite(error.max()):
        error[~np.isfinite(error)] = np.inf
        error[(actual == expected) | (np.isnan(actual) & np.isnan(expected))] = 0.0
    return error


def _precise(values: NDArray[Any]) -> NDArray[Any]:
    return values.astype(np.complex128 if values.dtype.kind == "c" else np.float64)


def _rms(values: NDArray[Any]) -> float:
    """Return the root mean square of the finite values; 0 if there are none."""
    chunks = [values[start : start + CHUNK] for start in range(0, values.size, CHUNK)]
    # einsum and not a dot product, for which BLAS would start threads that disturb what is being timed.
    squares = sum(float(np.einsum("i,i->", chunk, chunk.conj()).real) for chunk in map(_precise, chunks))
    if 0 < squares < np.inf:
        return float(np.sqrt(squares / values.size))
    # A value is not finite, or the square of a value overflows or becomes zero.
    sizes = np.abs(_precise(values))
    finite = sizes[np.isfinite(sizes)]
    scale = float(finite.max(initial=0.0))
    return scale * float(np.sqrt(np.mean(np.square(finite / scale)))) if scale else 0.0


def within(error: Error, tolerance: Tolerance) -> bool:
    """Return whether an error is within its tolerance; False for NaN."""
    return error.max <= tolerance.max and error.mean <= tolerance.mean


def wrong(name: str, out: NDArray[Any], ref: NDArray[Any], tolerance: Tolerance) -> ResultError:
    """Return the error that describes a result beyond its tolerance."""
    error = error_of(out, ref)
    index = tuple(int(i) for i in np.unravel_index(worst_of(out, ref), ref.shape))
    element = f"{name}[{', '.join(map(str, index))}]"
    what = (
        f"wrong result: {element} is {out[index]:.9g}, the reference says {ref[index]:.9g} "
        f"(error maximum {error.max:.3g}, mean {error.mean:.3g}; allowed {tolerance.max:.3g} and {tolerance.mean:.3g})"
    )
    cure = "correct the kernel, or the order of its args; if the error is rounding that you accept, widen the tolerance"
    if is_float(out.dtype) and np.isnan(out).any():
        cure = (
            f"{np.isnan(out).mean():.2%} of the elements are NaN, and outputs are filled with NaN before the launch: "
            "look for elements that are never written, and whether the kernel's parameters have the types of the "
            f"arrays: {name} is {out.dtype}"
        )
    return ResultError(what, cure=cure)
