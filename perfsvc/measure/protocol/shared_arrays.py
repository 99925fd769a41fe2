"""Inputs and references, made by the parent and read by every worker through shared memory.

The memory is an anonymous file whose descriptor travels with the job: nothing is left behind, however a process ends.
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

from perfsvc.measure.protocol.messages import Job, Placed
from perfsvc.model import Array

Arrays = Mapping[str, NDArray[Any]]

SHELF_SHARE = 0.25
"""Of the machine's memory, for the arrays of a run."""
ALIGNMENT = 256
TILE = 128
"""Rows and columns that are copied at once of an array that is not contiguous in memory."""
READ_BYTES = 4096
"""What is smaller is read and not mapped: to map a page and to give it back takes twenty times as long."""


@dataclass(frozen=True, slots=True, eq=False)
class Recipe:
    """How a case's arrays are made; each function may be called in any thread, and again where they were not kept.

    Attributes:
        name: equal for cases that have their arrays in common.
        make: gives the inputs and the expected results; raises ``SuiteError``.
        make_fresh: gives the same for the check after timing, both empty where there is nothing fresh; it may ask for
            the first inputs, and then waits until they are made. None where the case has no such check.
    """

    name: str
    make: Callable[[], tuple[Arrays, Arrays]]
    make_fresh: Callable[[Callable[[], Arrays]], tuple[Arrays, Arrays]] | None = None


@dataclass(frozen=True, slots=True)
class SharedArrays:
    """Inputs and expected results in one anonymous file."""

    descriptor: int
    nbytes: int
    inputs: tuple[Placed, ...]
    expected: tuple[Placed, ...]

    def close(self) -> None:
        """Gives the memory back once no worker maps it any more."""
        os.close(self.descriptor)


@dataclass(frozen=True, slots=True)
class Lent:
    """What goes with one job: its arrays by their name, and the fresh ones where its replica checks with them."""

    name: str
    first: SharedArrays
    fresh: SharedArrays | None = None

    @property
    def inputs(self) -> tuple[Placed, ...]:
        """``Job.inputs``."""
        return self.first.inputs

    @property
    def expected(self) -> tuple[Placed, ...]:
        """``Job.expected``."""
        return self.first.expected

    @property
    def fresh_inputs(self) -> tuple[Placed, ...]:
        """``Job.fresh_inputs``."""
        return self.fresh.inputs if self.fresh else ()

    @property
    def fresh_expected(self) -> tuple[Placed, ...]:
        """``Job.fresh_expected``."""
        return self.fresh.expected if self.fresh else ()

    @property
    def descriptors(self) -> tuple[int, ...]:
        """Of the memory that the arrays lie in, and of that of the fresh ones."""
        return (self.first.descriptor, self.fresh.descriptor) if self.fresh else (self.first.descriptor,)


class Mapped:
    """A job's arrays as its worker sees them: read-only, by name.

    Args:
        descriptors: those of ``Lent``, which may be closed afterwards.
        job: says what lies where.
    """

    def __init__(self, descriptors: Sequence[int], job: Job) -> None:
        first, *fresh = (_mapped(descriptor) for descriptor in descriptors)
        self.inputs = _views(first, job.inputs)
        self.expected = _views(first, job.expected)
        self.fresh_inputs = _views(fresh[0], job.fresh_inputs) if fresh else {}
        self.fresh_expected = _views(fresh[0], job.fresh_expected) if fresh else {}


def budget_bytes() -> int:
    """How much memory the arrays of a run may take on this machine, beside those that are being measured."""
    return int(SHELF_SHARE * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def share(inputs: Arrays, expected: Arrays) -> SharedArrays:
    """Copies arrays into shared memory, once, whatever their layout is."""
    offsets = itertools.accumulate(map(_room, (*inputs.values(), *expected.values())), initial=0)
    places = [_placed(arrays, offsets) for arrays in (inputs, expected)]
    nbytes = next(offsets)
    descriptor = _anonymous_file(nbytes)
    for arrays, placed in zip((inputs, expected), places, strict=True):
        for one in placed:
            _write(descriptor, one.offset, arrays[one.array.name])
    return SharedArrays(descriptor, nbytes, *places)


def first_inputs(shared: SharedArrays) -> Arrays:
    """The inputs that were shared, read-only, for the parent to look at."""
    return _views(_mapped(shared.descriptor), shared.inputs)


def _room(array: NDArray[Any]) -> int:
    return -(-array.nbytes // ALIGNMENT) * ALIGNMENT


def _placed(arrays: Arrays, offsets: Iterator[int]) -> tuple[Placed, ...]:
    return tuple(Placed(Array(name, array.dtype.name, array.shape), next(offsets)) for name, array in arrays.items())


def _write(descriptor: int, offset: int, array: NDArray[Any]) -> None:
    """Writes an array into a file, which takes half as long as into its mapping: no page has to be faulted in first."""
    if array.flags.c_contiguous:
        content = array.reshape(-1).view(np.uint8)
        while content.size:
            written = os.pwrite(descriptor, content.data, offset)
            content, offset = content[written:], offset + written
    elif array.ndim == 1:
        _write(descriptor, offset, np.ascontiguousarray(array))
    else:
        for row in range(0, len(array), TILE):
            rows = _contiguous(array[row : row + TILE])
            _write(descriptor, offset, rows)
            offset += rows.nbytes


def _contiguous(rows: NDArray[Any]) -> NDArray[Any]:
    """A copy of some rows, tile by tile: where they are columns in memory, a cache holds the lines of one tile."""
    copy = np.empty(rows.shape, rows.dtype)
    for column in range(0, rows.shape[1], TILE):
        copy[:, column : column + TILE] = rows[:, column : column + TILE]
    return copy


def _mapped(descriptor: int) -> mmap.mmap | bytes:
    small = os.pread(descriptor, READ_BYTES, 0)
    return small if len(small) < READ_BYTES else mmap.mmap(descriptor, 0, prot=mmap.PROT_READ)


def _views(memory: mmap.mmap | bytes, places: Sequence[Placed]) -> dict[str, NDArray[Any]]:
    return {placed.array.name: _view(memory, placed) for placed in places}


def _view(memory: mmap.mmap | bytes, placed: Placed) -> NDArray[Any]:
    return np.ndarray(placed.array.shape, np.dtype(placed.array.dtype), memory, placed.offset)


def _anonymous_file(nbytes: int) -> int:
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("perfsvc-arrays")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, nbytes)
    return descriptor
