"""Arrays that one process makes and others read, through shared memory.

The memory is an anonymous file whose descriptor is sent over a socket. Nothing is left behind, however a process ends.
"""

import fcntl
import itertools
import math
import mmap
import os
import tempfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

import perfsvc.dtypes  # noqa: F401 - it makes NumPy know bfloat16 and float8
from perfsvc.model import Array, Parts

Arrays = Mapping[str, NDArray[Any]]

ALIGNMENT = 256


@dataclass(frozen=True, slots=True)
class ArrayLocation:
    """An array and its offset in bytes in shared memory."""

    array: Array
    offset: int


@dataclass(frozen=True, slots=True)
class ArrayLayout:
    """Where inputs and references lie in one piece of shared memory."""

    inputs: tuple[ArrayLocation, ...] = ()
    expected: tuple[ArrayLocation, ...] = ()


@dataclass(frozen=True, slots=True)
class SharedArrays:
    """Inputs and expected results in one anonymous file.

    Attributes:
        inputs: checksums of the inputs' values by name, if somebody compares them.
        made_from: the files and variables from which the arrays were made, with digests or values.
    """

    descriptor: int
    nbytes: int
    layout: ArrayLayout
    inputs: Parts = ()
    made_from: Parts = ()

    def close(self) -> None:
        """Close the file; the memory is freed once no worker maps it."""
        os.close(self.descriptor)


def share(inputs: Arrays, expected: Arrays) -> SharedArrays:
    """Copy arrays, of any memory layout and byte order, into shared memory, in this machine's byte order."""
    sizes = (-(-array.nbytes // ALIGNMENT) * ALIGNMENT for array in (*inputs.values(), *expected.values()))
    offsets = itertools.accumulate(sizes, initial=0)
    layout = ArrayLayout(_locate(inputs, offsets), _locate(expected, offsets))
    nbytes = next(offsets)
    descriptor = _anonymous_file(nbytes)
    for arrays, locations in ((inputs, layout.inputs), (expected, layout.expected)):
        for location in locations:
            _write(descriptor, location.offset, arrays[location.array.name])
    if hasattr(os, "memfd_create"):  # reading beyond the end of a file that has shrunk would end the reader
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
    return SharedArrays(descriptor, nbytes, layout)


def with_checksums(arrays: SharedArrays, made_from: Parts) -> SharedArrays:
    """Return arrays with the checksums of their inputs, and with what they were made from."""
    inputs = map_arrays(arrays.descriptor, arrays.layout.inputs)
    sums = {name: zlib.crc32(array.reshape(-1).view(np.uint8).data) for name, array in sorted(inputs.items())}
    return replace(arrays, inputs=tuple((name, f"{value:08x}") for name, value in sums.items()), made_from=made_from)


def received(descriptor: int, layout: ArrayLayout) -> SharedArrays:
    """Return the arrays in shared memory from another process; first check that reading them cannot end this process.

    Raises:
        ValueError: the layout does not fit into the file, or the file may still shrink.
        OSError: the descriptor is no shared memory.
    """
    nbytes = os.fstat(descriptor).st_size
    if hasattr(os, "memfd_create") and not fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK:
        raise ValueError("shared memory that may still shrink")
    for location in (*layout.inputs, *layout.expected):
        array = location.array
        try:
            dtype = np.dtype(array.dtype)
        except TypeError as error:
            raise ValueError(f"an array of {array.dtype!r}") from error
        ends = location.offset + dtype.itemsize * math.prod(array.shape)
        if dtype.hasobject or min(location.offset, *array.shape, 0) < 0 or ends > nbytes:
            raise ValueError(f"an array of {array.dtype} {array.shape} at {location.offset} in {nbytes} bytes")
    return SharedArrays(descriptor, nbytes, layout)


def map_arrays(descriptor: int, locations: Sequence[ArrayLocation]) -> dict[str, NDArray[Any]]:
    """Return read-only views of the arrays in a file, by name; the file may be closed afterwards."""
    # An empty file cannot be mapped.
    memory = mmap.mmap(descriptor, 0, prot=mmap.PROT_READ) if os.fstat(descriptor).st_size else b""
    return {
        location.array.name: np.ndarray(location.array.shape, np.dtype(location.array.dtype), memory, location.offset)
        for location in locations
    }


def take_inputs(made: SharedArrays) -> dict[str, NDArray[Any]]:
    """Return read-only views of the inputs, by name, and close the file."""
    try:
        return map_arrays(made.descriptor, made.layout.inputs)
    finally:
        made.close()


def _locate(arrays: Arrays, offsets: Iterator[int]) -> tuple[ArrayLocation, ...]:
    """Return the location of each array; each array takes the next of the offsets."""
    return tuple(
        ArrayLocation(Array(name, array.dtype.name, array.shape), next(offsets)) for name, array in arrays.items()
    )


def _write(descriptor: int, offset: int, array: NDArray[Any]) -> None:
    """Write an array into a file.

    Writing into a mapping of the file would take twice as long, because the mapping's pages have to be faulted in.
    """
    content = np.ascontiguousarray(array, array.dtype.newbyteorder("=")).reshape(-1).view(np.uint8)
    while content.size:
        written = os.pwrite(descriptor, content.data, offset)
        content, offset = content[written:], offset + written


def _anonymous_file(nbytes: int) -> int:
    """Return the descriptor of a new file without a name, of this size; in memory where the system has such files."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("perfsvc-arrays", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, nbytes)
    return descriptor
