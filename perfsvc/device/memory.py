"""Memory of devices: host memory, the common part of devices on the host, and the arena for timed buffers of GPUs."""

import ctypes
import functools
import hashlib
import math
import mmap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfsvc.device.groups import OneDevice
from perfsvc.device.protocol import Reduction
from perfsvc.dtypes import bits
from perfsvc.errors import LaunchError
from perfsvc.model import Array, DeviceInfo, Error, TensorMapArg, Unit

BLOCKING_KERNEL = "perfsvc_block"
STAMP = "perfsvc_stamp"
DIGEST = "perfsvc_digest"

FLOATS = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float32", "float64")
INTEGERS = ("int32", "uint32", "int64", "uint64")


def error_entry(dtype: str, reference_dtype: str) -> str:
    """Return the name of the kernel that computes the error of a result; empty if no kernel fits these dtypes."""
    floats = dtype in FLOATS and reference_dtype == "float64"
    integers = dtype in INTEGERS and reference_dtype in {dtype, "int64"}
    return f"perfsvc_error_{dtype}_{reference_dtype}" if floats or integers else ""


def squares_entry(reference_dtype: str) -> str:
    """Return the kernel that sums the squares of a reference."""
    return f"perfsvc_squares_{reference_dtype}"


def unit(kind: str) -> Unit | None:
    """Return the unit of perfsvc's helper kernels for a kind of device; None if the kind needs no helper kernels."""
    if kind != "cuda":
        return None
    pairs = [(dtype, "float64") for dtype in FLOATS] + [(dtype, dtype) for dtype in INTEGERS]
    pairs += [(dtype, "int64") for dtype in INTEGERS if dtype != "int64"]
    squares = {squares_entry(reference): None for _, reference in pairs}
    entries = (BLOCKING_KERNEL, STAMP, DIGEST, *squares, *(error_entry(*pair) for pair in pairs))
    return Unit(Path(__file__).with_name("helper_kernels.cu"), entries)


HOST_ALIGNMENT = 256
_REDUCE: Mapping[Reduction, Callable[[Any, Any], Any]] = {"sum": np.add, "min": np.minimum, "max": np.maximum}
ARENA_SHARE = 0.25
"""Share of the device's memory that the arena takes."""
PAGE_BYTES = 2 << 20
"""The driver maps memory in pages of this size, and large allocations begin at the start of a page."""
ARENA_ALIGNMENT = 512


def array_bytes(array: Array) -> int:
    """Return the size of an array in bytes."""
    return math.prod(array.shape) * np.dtype(array.dtype).itemsize


class _RawBytes:
    """Bytes at an address, described by NumPy's array interface."""

    def __init__(self, address: int, dtype: str, shape: tuple[int, ...]) -> None:
        self.__array_interface__ = {
            "data": (address, False),
            "typestr": bits(np.dtype(dtype)).str,
            "shape": shape,
            "version": 3,
        }


class HostMemory(OneDevice):
    """Host memory for devices without memory of their own, allocated and moved by plain addresses as on a GPU."""

    page_bytes = mmap.PAGESIZE

    def __init__(self) -> None:
        self._blocks: dict[int, NDArray[np.uint8]] = {}

    def allocate(self, nbytes: int) -> int:
        """Allocate ``nbytes`` bytes, aligned to 256, and return their address; raises ``LaunchError`` if it fails."""
        try:
            block = np.empty(nbytes + HOST_ALIGNMENT, np.uint8)
        except MemoryError as error:
            raise LaunchError(
                f"out of memory: the host has no {nbytes} bytes left", cure="run smaller points"
            ) from error
        start: int = block.ctypes.data
        address = -(-start // HOST_ALIGNMENT) * HOST_ALIGNMENT
        self._blocks[address] = block
        return address

    def allocate_untimed(self, nbytes: int) -> int:
        """Allocate memory as ``allocate`` does."""
        return self.allocate(nbytes)

    def free(self, address: int) -> None:
        """Free what ``allocate`` returned; raises ``LaunchError`` for any other address."""
        if self._blocks.pop(address, None) is None:
            raise LaunchError(f"invalid argument: {address:#x} was never allocated or is already free")

    def fill(self, address: int, nbytes: int, byte: int) -> None:
        """Set each of ``nbytes`` bytes to ``byte``."""
        ctypes.memset(address, byte, nbytes)

    def upload(self, address: int, data: NDArray[Any]) -> None:
        """Copy a C-contiguous array to an address."""
        ctypes.memmove(address, data.ctypes.data, data.nbytes)

    def write(self, address: int, content: bytes) -> None:
        """Copy bytes to an address."""
        ctypes.memmove(address, content, len(content))

    def download(self, address: int, out: NDArray[Any]) -> None:
        """Copy from an address into a C-contiguous array."""
        ctypes.memmove(out.ctypes.data, address, out.nbytes)

    def copy(self, target: int, source: int, nbytes: int) -> None:
        """Copy from one address to another."""
        ctypes.memmove(target, source, nbytes)

    def digest(self, address: int, nbytes: int) -> str:
        """Return the SHA-256 digest of ``nbytes`` bytes, in hexadecimal."""
        return hashlib.sha256((ctypes.c_ubyte * nbytes).from_address(address)).hexdigest()

    def view(self, address: int, dtype: str, shape: tuple[int, ...]) -> NDArray[Any]:
        """Return the memory itself as an array, valid until it is freed."""
        return np.asarray(_RawBytes(address, dtype, shape)).view(np.dtype(dtype))


class HostDevice(HostMemory):
    """The part of a ``Device`` that devices on the host share: they have no streams, and nothing is ever queued.

    All GPUs of a group of such devices use the same memory.
    """

    info: DeviceInfo
    stream = 0
    queue_depth = 0

    def all_reduce(
        self, sources: Sequence[int], targets: Sequence[int], dtype: str, count: int, operation: Reduction
    ) -> None:
        """Combine the arrays at ``sources``, and copy the result to each of ``targets``."""
        arrays = [self.view(address, dtype, (count,)) for address in sources]
        combined = functools.reduce(_REDUCE[operation], arrays)
        for address in targets:
            self.upload(address, combined)

    def tensor_map(self, address: int, arg: TensorMapArg) -> np.generic:
        """Raise ``LaunchError``: only GPUs have tensor maps."""
        raise LaunchError(f"this device has no tensor map of {arg.buffer!r}", cure='give the variant requires="sm_90"')

    def synchronize(self) -> None:
        """Do nothing: everything is done already."""

    def can_compute_error(self, dtype: str, reference_dtype: str) -> bool:
        """Return False: the host computes errors just as fast as this device."""
        return False

    def error(self, address: int, dtype: str, reference: int, reference_dtype: str, count: int) -> Error | None:
        """Return None: the host computes the error."""
        return None

    def uses_other_streams(
        self, sample: Callable[[], None], seconds: float, watched: Sequence[tuple[int, int]]
    ) -> bool:
        """Return False: this device has no streams."""
        return False


def arena_bytes(memory_bytes: int) -> int:
    """Return how much of a device's memory the arena gets."""
    return int(ARENA_SHARE * memory_bytes) // PAGE_BYTES * PAGE_BYTES


class Arena:
    """One allocation, made before any other, from which timed buffers are allocated in order.

    The physical address of an array changes its times: a transposition by columns took 315 to 329 µs on an H100,
    depending only on where its two matrices were (docs/decisions.md). The first allocation of a fresh context has the
    same address in every process on an idle GPU. Each case finds the whole arena free, whatever was measured before.

    Args:
        start: the address of the allocation.
        nbytes: the size of the allocation; 0 if there was no memory for the arena.
    """

    def __init__(self, start: int, nbytes: int) -> None:
        self._start = start
        self._nbytes = nbytes
        self._ends: dict[int, int] = {}  # the end of each allocated piece, by its address

    def allocate(self, nbytes: int) -> int | None:
        """Allocate a piece behind all allocated pieces and return its address; None if there is no room left."""
        alignment = PAGE_BYTES if nbytes >= PAGE_BYTES else ARENA_ALIGNMENT
        address = -(-max(self._ends.values(), default=self._start) // alignment) * alignment
        end = address + max(nbytes, 1)
        if end > self._start + self._nbytes:
            return None
        self._ends[address] = end
        return address

    def free(self, address: int) -> bool:
        """Free the piece at an address; return False if the arena has no piece there."""
        return self._ends.pop(address, None) is not None
