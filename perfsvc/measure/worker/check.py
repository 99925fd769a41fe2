"""Checks of a result: against its reference before and after timing, on the device if it can."""

import contextlib
import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfsvc.device.protocol import Device
from perfsvc.errors import ResultError
from perfsvc.measure.protocol.messages import Job, Known
from perfsvc.measure.protocol.shared_arrays import Mapped
from perfsvc.measure.worker.memory import Memory, Vault
from perfsvc.measure.worker.program import Program
from perfsvc.model import Error, Kind, Role, Tolerance

RESULTS = (Role.OUTPUT, Role.INOUT)
PATIENCE = 2.0
PATIENCE_S = 1e-3
"""How long a sample that is held back is given to do its work elsewhere: so many times what it takes, and this."""


class Check:
    """The checks of one case in one replica. Outputs are poisoned before each.

    Args:
        device: where the results are.
        job: the case.
        arrays: its inputs and references.
        vault: keeps them on the device.
        memory: the case's buffers.
        program: its steps.

    Attributes:
        seconds: spent on checking so far.
        error: the largest found so far; None without a reference.
    """

    def __init__(  # noqa: PLR0917 all that a case has comes together here
        self, device: Device, job: Job, arrays: Mapped, vault: Vault, memory: Memory, program: Program
    ) -> None:
        self._device = device
        self._job = job
        self._arrays = arrays
        self._vault = vault
        self._memory = memory
        self._program = program
        self._first: dict[str, str] = {}
        self.seconds = 0.0
        self.error: Error | None = None

    @property
    def known(self) -> Known | None:
        """What was found right before any sample, for the replicas to come."""
        return Known(self._first, self.error) if self.error else None

    def before(self) -> list[Any]:
        """Runs every step once and checks all that can be; returns what its Python functions returned.

        Raises:
            ResultError: the result is wrong, or the case wrote where it must not.
        """
        with self._watched():
            self._reset(self._arrays.inputs, self._arrays.expected, "first")
            inputs = self._memory.digests(Role.INPUT) if self._job.replica == 0 else {}
            returned = self._program.call()
            self._memory.require_intact_guards()
            self._require_intact(inputs)
            self._first = self._memory.digests(*RESULTS)
            known = self._job.known
            if known and known.digests == self._first:
                self.error = known.error
            else:
                self._require_right(self._arrays.expected, "first")
        return returned

    def after(self, typical_s: float) -> None:
        """Checks once more, with other inputs where there are any: what was timed must still be right.

        Args:
            typical_s: what a sample takes.

        Raises:
            ResultError: it is not, or did not change with its inputs, or is not made on the stream it was given.
        """
        with self._watched():
            if self._arrays.fresh_inputs:
                self._rerun(self._arrays.fresh_inputs, self._arrays.fresh_expected, "fresh")
                if self._arrays.fresh_expected:
                    self._require_right(self._arrays.fresh_expected, "fresh")
                else:
                    self._require_changed()
            if not self._arrays.fresh_expected:
                self._rerun(self._arrays.inputs, self._arrays.expected, "first")
                if self._memory.digests(*RESULTS) != self._first:  # no fault yet: sums in another order differ
                    self._require_right(self._arrays.expected, "first")
            if self._program.calls and self._job.record.kind is Kind.KERNEL:
                self._require_on_stream(typical_s)

    def _rerun(self, inputs: Mapping[str, NDArray[Any]], expected: Mapping[str, NDArray[Any]], which: str) -> None:
        self._reset(inputs, expected, which)
        self._program.run()
        self._memory.require_intact_guards()

    def _reset(self, inputs: Mapping[str, NDArray[Any]], expected: Mapping[str, NDArray[Any]], which: str) -> None:
        self._device.expect(expected)
        self._memory.reset(
            lambda name, address: self._vault.bring((self._job.arrays, which, name), inputs[name], address)
        )
        self._program.set_constants()

    def _require_intact(self, inputs: Mapping[str, str]) -> None:
        for name, digest in self._memory.digests(Role.INPUT).items() if inputs else ():
            if digest != inputs[name]:
                raise ResultError(
                    f"the case wrote to its input {name!r}",
                    cure="write to outputs and scratch alone; what is changed in place is an input and an output",
                )

    def _require_right(self, expected: Mapping[str, NDArray[Any]], which: str) -> None:
        for name, ref in expected.items():
            error = self._error_on_device(name, ref, which) or error_of(self._memory.read(name), ref)
            if not within(error, self._job.tolerance):
                raise wrong(name, self._memory.read(name), ref, self._job.tolerance)
            self.error = _larger(self.error, error)

    def _error_on_device(self, name: str, ref: NDArray[Any], which: str) -> Error | None:
        """The error of an output as the device finds it; None where it cannot."""
        dtype = self._memory.array(name).dtype
        if not self._device.finds_errors(dtype, ref.dtype.name):
            return None
        reference = self._vault.address((self._job.arrays, which, "expected", name), ref)
        if reference is None:
            return None
        return self._device.error(self._memory.address(name), dtype, reference, ref.dtype.name, ref.size)

    def _require_changed(self) -> None:
        now = self._memory.digests(*RESULTS)
        for name in now:
            if now[name] == self._first[name]:
                raise ResultError(
                    f"{name!r} did not change when the inputs did: it was not computed anew",
                    cure="do the whole work at each call; a result that is kept from an earlier one is not timed",
                )

    def _require_on_stream(self, typical_s: float) -> None:
        self._reset(self._arrays.inputs, self._arrays.expected, "first")
        watched = [
            (self._memory.address(name), self._memory.nbytes(name))
            for name in self._memory.names(*RESULTS, Role.SCRATCH)
        ]
        if self._device.works_elsewhere(self._program.queue, PATIENCE * typical_s + PATIENCE_S, watched):
            raise ResultError(
                "the case works on another stream than the one it was given, so that its time is not what was measured",
                cure="queue all work on the stream that the function is called with, or make it kind='pipeline'",
            )

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        started = time.monotonic()
        try:
            yield
        finally:
            self.seconds += time.monotonic() - started


def _larger(one: Error | None, other: Error) -> Error:
    return Error(max(one.max, other.max), max(one.mean, other.mean)) if one else other


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
