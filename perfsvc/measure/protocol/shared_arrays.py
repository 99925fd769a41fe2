"""The inputs and references of a case: how they are made, and what its worker reads through shared memory."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from perfsvc.measure.protocol.messages import CaseJob
from perfsvc.model import Buffer
from perfsvc.process.shared_memory import ArrayLayout, Arrays, SharedArrays, map_arrays, share
from perfsvc.suite import CaseSpec
from perfsvc.suite.isolated.requests import ReplayArrays

MEMORY_SHARE = 0.25
"""Share of the machine's memory that the arrays of a run may take."""


Source = CaseSpec | ReplayArrays | None
"""What another host makes the arrays of a case from; None for a case without arrays."""


def _nothing() -> None:
    """Do nothing."""


@dataclass(frozen=True, slots=True, eq=False)
class Recipe:
    """How to make the arrays of a case. Any thread may call the functions, and again if the arrays were discarded.

    Attributes:
        name: equal for cases that share their arrays.
        make: returns the inputs and the expected results; raises ``SuiteError``.
        make_fresh: returns other inputs and their expected results for the check after timing; both are empty if there
            are no other inputs. Its argument is a function that waits for the arrays of ``make`` and returns them.
            ``make_fresh`` is None if the case has no check with other inputs.
        cancel: makes the calls of ``make`` and ``make_fresh`` that run in other threads fail soon.
        source: what another host makes the same arrays from.
    """

    name: str
    make: Callable[[], SharedArrays]
    make_fresh: Callable[[Callable[[], SharedArrays]], SharedArrays] | None = None
    cancel: Callable[[], object] = _nothing
    source: Source = None


NO_ARRAYS = Recipe("", partial(share, {}, {}))
"""The recipe of a case that has no arrays, such as a program."""


@dataclass(frozen=True, slots=True)
class JobArrays:
    """The arrays of one job and their name, with the fresh arrays if the job's replica uses them in its check."""

    name: str
    first: SharedArrays
    fresh: SharedArrays | None = None

    @property
    def descriptors(self) -> tuple[int, ...]:
        """The file descriptors to send with the job."""
        return (self.first.descriptor, self.fresh.descriptor) if self.fresh else (self.first.descriptor,)


class MappedArrays:
    """The arrays of a job as its worker sees them: read-only, by name.

    Args:
        descriptors: ``JobArrays.descriptors``; they may be closed afterwards.
        job: the job, which describes the layout of the arrays.
    """

    def __init__(self, descriptors: Sequence[int], job: CaseJob) -> None:
        first, *fresh = descriptors
        buffers = job.record.buffers
        self.inputs = of_buffers(map_arrays(first, job.arrays.inputs), buffers)
        self.expected = of_buffers(map_arrays(first, job.arrays.expected), buffers)
        fresh_layout = job.fresh_arrays or ArrayLayout()
        self.fresh_inputs = of_buffers(map_arrays(fresh[0], fresh_layout.inputs), buffers) if fresh else {}
        self.fresh_expected = of_buffers(map_arrays(fresh[0], fresh_layout.expected), buffers) if fresh else {}


def of_buffers(arrays: Arrays, buffers: Sequence[Buffer]) -> Arrays:
    """Return arrays by the names of the buffers that hold them: the parts of each GPU in a case on several GPUs."""
    parts = {buffer.array.name: buffer.part for buffer in buffers if buffer.part}
    if not parts:
        return arrays
    return {
        name: arrays[part.array][part.start : part.stop or None] for name, part in parts.items() if part.array in arrays
    }


def budget_bytes() -> int:
    """Return how much memory the prepared arrays of a run may take on this machine."""
    return int(MEMORY_SHARE * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
