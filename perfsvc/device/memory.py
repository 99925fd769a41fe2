"""Host memory under the rules of device memory: plain addresses, aligned, nobody's but the device's."""

import ctypes
import hashlib
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfsvc.errors import LaunchError

ALIGNMENT = 256
BAND_BYTES = 64 << 10
"""The largest guard band: what is larger is a buffer, of which a copy would take memory and time."""

_compare = ctypes.pythonapi.memcmp  # of the C library, where ctypes has memmove and memset from
_compare.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


class _Raw:
    """Bytes at an address, as NumPy's array interface describes them."""

    def __init__(self, address: int, dtype: str, shape: tuple[int, ...]) -> None:
        self.__array_interface__ = {
            "data": (address, False),
            "typestr": np.dtype(dtype).str,
            "shape": shape,
            "version": 3,
        }


@cache
def _digest_of_band(byte: int, nbytes: int) -> str:
    return hashlib.sha256(bytes([byte]) * nbytes).hexdigest()


class HostMemory:
    """Allocates and moves memory for the devices that have none of their own."""

    def __init__(self) -> None:
        self._blocks: dict[int, NDArray[np.uint8]] = {}

    def allocate(self, nbytes: int) -> int:
        """The address of ``nbytes`` new bytes, aligned to 256; raises ``LaunchError`` where the host has no more."""
        try:
            block = np.empty(nbytes + ALIGNMENT, np.uint8)
        except MemoryError as error:
            raise LaunchError(
                f"out of memory: the host has no {nbytes} bytes left", cure="run smaller points"
            ) from error
        start: int = block.ctypes.data
        address = -(-start // ALIGNMENT) * ALIGNMENT
        self._blocks[address] = block
        return address

    def free(self, address: int) -> None:
        """Frees what ``allocate`` returned; raises ``LaunchError`` for any other address."""
        if self._blocks.pop(address, None) is None:
            raise LaunchError(f"invalid argument: {address:#x} was never allocated or is already free")

    def fill(self, address: int, nbytes: int, byte: int) -> None:
        """Sets each of ``nbytes`` bytes to ``byte``."""
        ctypes.memset(address, byte, nbytes)

    def upload(self, address: int, data: NDArray[Any]) -> None:
        """Copies a C-contiguous array to an address."""
        ctypes.memmove(address, data.ctypes.data, data.nbytes)

    def write(self, address: int, content: bytes) -> None:
        """Copies bytes to an address."""
        ctypes.memmove(address, content, len(content))

    def download(self, address: int, out: NDArray[Any]) -> None:
        """Copies from an address into a C-contiguous array."""
        ctypes.memmove(out.ctypes.data, address, out.nbytes)

    def copy(self, target: int, source: int, nbytes: int) -> None:
        """Copies from one address to another."""
        ctypes.memmove(target, source, nbytes)

    def digest(self, address: int, nbytes: int) -> str:
        """The SHA-256 digest of ``nbytes`` bytes, in hexadecimal: what processors have instructions for.

        Of a band that holds one byte alone it is known from the last time: that each byte is equal to the next is seen
        sooner than any digest.
        """
        if 0 < nbytes <= BAND_BYTES and not _compare(address, address + 1, nbytes - 1):
            return _digest_of_band(ctypes.c_ubyte.from_address(address).value, nbytes)
        return hashlib.sha256((ctypes.c_ubyte * nbytes).from_address(address)).hexdigest()

    def view(self, address: int, dtype: str, shape: tuple[int, ...]) -> NDArray[Any]:
        """The memory itself as an array, valid until it is freed."""
        return np.asarray(_Raw(address, dtype, shape))
