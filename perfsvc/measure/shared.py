"""Inputs and references, made once by the parent and read by every worker through shared memory.

The memory is an anonymous file whose descriptor travels with the job: nothing is left behind, however a process ends.
"""

import mmap
import os
import tempfile
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfsvc.measure.job import Placed
from perfsvc.model import Array

ALIGNMENT = 256


@dataclass(frozen=True, slots=True)
class SharedArrays:
    """Named arrays in one anonymous file."""

    descriptor: int
    nbytes: int
    inputs: tuple[Placed, ...]
    expected: tuple[Placed, ...]
    fresh_inputs: tuple[Placed, ...] = ()
    fresh_expected: tuple[Placed, ...] = ()
    name: str = ""  # ``Job.arrays``

    def close(self) -> None:
        """Gives the memory back once no worker maps it any more."""
        os.close(self.descriptor)


def share(inputs: Mapping[str, NDArray[Any]], expected: Mapping[str, NDArray[Any]]) -> SharedArrays:
    """Copies arrays into shared memory."""
    places: dict[tuple[bool, str], Placed] = {}
    nbytes = 0
    for is_input, arrays in ((True, inputs), (False, expected)):
        for name, array in arrays.items():
            places[is_input, name] = Placed(Array(name, array.dtype.name, array.shape), nbytes)
            nbytes += -(-array.nbytes // ALIGNMENT) * ALIGNMENT
    descriptor = _anonymous_file(nbytes)
    if nbytes:
        with mmap.mmap(descriptor, nbytes) as memory:
            for (is_input, name), placed in places.items():
                np.copyto(_view(memory, placed), (inputs if is_input else expected)[name])
    return SharedArrays(
        descriptor,
        nbytes,
        tuple(placed for (is_input, _), placed in places.items() if is_input),
        tuple(placed for (is_input, _), placed in places.items() if not is_input),
    )


class Mapped:
    """Shared arrays as a worker sees them: read-only, by name."""

    def __init__(self, descriptor: int, inputs: tuple[Placed, ...], expected: tuple[Placed, ...]) -> None:
        nbytes = os.fstat(descriptor).st_size
        memory: mmap.mmap | bytes = mmap.mmap(descriptor, nbytes, prot=mmap.PROT_READ) if nbytes else b""
        self.inputs = {placed.array.name: _view(memory, placed) for placed in inputs}
        self.expected = {placed.array.name: _view(memory, placed) for placed in expected}


class Shelf:
    """Keeps the arrays that were shared last, up to a budget, and makes the others again when they are asked for.

    Args:
        budget_bytes: what may be kept beside the arrays that were asked for last.
    """

    def __init__(self, budget_bytes: int) -> None:
        self._budget = budget_bytes
        self._kept: OrderedDict[Hashable, SharedArrays] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], SharedArrays]) -> SharedArrays:
        """The arrays under ``key``, made by ``make`` where they are not kept."""
        if key not in self._kept:
            self._kept[key] = make()
        self._kept.move_to_end(key)
        while len(self._kept) > 1 and sum(arrays.nbytes for arrays in self._kept.values()) > self._budget:
            self._kept.popitem(last=False)[1].close()
        return self._kept[key]

    def close(self) -> None:
        """Gives all memory back."""
        while self._kept:
            self._kept.popitem()[1].close()


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
