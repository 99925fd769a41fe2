"""Inputs and references, made by the parent and read by workers through shared memory.

The memory is an anonymous file whose descriptor comes with the job. Nothing is left behind, however a process ends.
"""

import itertools
import mmap
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfsvc.measure.protocol.messages import ArrayLayout, ArrayLocation, CaseJob
from perfsvc.model import Array

Arrays = Mapping[str, NDArray[Any]]

MEMORY_SHARE = 0.25
"""Share of the machine's memory that the arrays of a run may take."""
ALIGNMENT = 256


@dataclass(frozen=True, slots=True, eq=False)
class Recipe:
    """How to make the arrays of a case. Any thread may call the functions, and again if the arrays were discarded.

    Attributes:
        name: equal for cases that share their arrays.
        make: returns the inputs and the expected results; raises ``SuiteError``.
        make_fresh: returns other inputs and their expected results for the check after timing; both are empty if there
            are no other inputs. Its argument is a function that waits for the first inputs and returns them.
            ``make_fresh`` is None if the case has no check with other inputs.
    """

    name: str
    make: Callable[[], tuple[Arrays, Arrays]]
    make_fresh: Callable[[Callable[[], Arrays]], tuple[Arrays, Arrays]] | None = None


@dataclass(frozen=True, slots=True)
class SharedArrays:
    """Inputs and expected results in one anonymous file."""

    descriptor: int
    nbytes: int
    layout: ArrayLayout

    def close(self) -> None:
        """Close the file; the memory is freed once no worker maps it."""
        os.close(self.descriptor)


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
        self.inputs = map_arrays(first, job.arrays.inputs)
        self.expected = map_arrays(first, job.arrays.expected)
        fresh_layout = job.fresh_arrays or ArrayLayout()
        self.fresh_inputs = map_arrays(fresh[0], fresh_layout.inputs) if fresh else {}
        self.fresh_expected = map_arrays(fresh[0], fresh_layout.expected) if fresh else {}


def budget_bytes() -> int:
    """Return how much memory the prepared arrays of a run may take on this machine."""
    return int(MEMORY_SHARE * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def share(inputs: Arrays, expected: Arrays) -> SharedArrays:
    """Copy arrays, of any memory layout, into shared memory."""
    offsets = itertools.accumulate(map(_aligned_bytes, (*inputs.values(), *expected.values())), initial=0)
    layout = ArrayLayout(_locate(inputs, offsets), _locate(expected, offsets))
    nbytes = next(offsets)
    descriptor = _anonymous_file(nbytes)
    for arrays, locations in ((inputs, layout.inputs), (expected, layout.expected)):
        for location in locations:
            _write(descriptor, location.offset, arrays[location.array.name])
    return SharedArrays(descriptor, nbytes, layout)


def map_arrays(descriptor: int, locations: Sequence[ArrayLocation]) -> dict[str, NDArray[Any]]:
    """Return read-only views of the arrays in a file, by name; the file may be closed afterwards."""
    # An empty file cannot be mapped.
    memory = mmap.mmap(descriptor, 0, prot=mmap.PROT_READ) if os.fstat(descriptor).st_size else b""
    return {
        location.array.name: np.ndarray(location.array.shape, np.dtype(location.array.dtype), memory, location.offset)
        for location in locations
    }


def _aligned_bytes(array: NDArray[Any]) -> int:
    return -(-array.nbytes // ALIGNMENT) * ALIGNMENT


def _locate(arrays: Arrays, offsets: Iterator[int]) -> tuple[ArrayLocation, ...]:
    """Return the location of each array; each takes the next of the offsets."""
    return tuple(
        ArrayLocation(Array(name, array.dtype.name, array.shape), next(offsets)) for name, array in arrays.items()
    )


def _write(descriptor: int, offset: int, array: NDArray[Any]) -> None:
    """Write an array into a file.

    This takes half the time of writing into a mapping of the file, whose pages have to be faulted in.
    """
    content = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    while content.size:
        written = os.pwrite(descriptor, content.data, offset)
        content, offset = content[written:], offset + written


def _anonymous_file(nbytes: int) -> int:
    """Return the descriptor of a new file without a name, of this size; in memory where the system has such files."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("perfsvc-arrays")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, nbytes)
    return descriptor
