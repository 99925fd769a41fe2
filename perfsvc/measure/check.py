"""Is a result right? Checked before samples are taken and after, on a device that may be far from the host.

Results stay where they are: the device finds their errors and fingerprints where it can, and the host does the rest.
"""

import contextlib
import time
from collections.abc import Iterator, Mapping
from typing import Any

from numpy.typing import NDArray

from perfsvc.device.protocol import Device
from perfsvc.errors import ResultError
from perfsvc.measure.error import error_of, within, wrong
from perfsvc.measure.job import Job, Known
from perfsvc.measure.memory import Memory
from perfsvc.measure.program import Program
from perfsvc.measure.shared import Mapped
from perfsvc.measure.vault import Vault
from perfsvc.model import Error, Kind, Role

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
