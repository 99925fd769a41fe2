"""The device memory of one case: every buffer between two guard bands, outputs poisoned before each check."""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from perfsvc.device.protocol import Device
from perfsvc.errors import LaunchError, ResultError
from perfsvc.model import Buffer, Role

GUARD_BYTES = 64 << 10
"""Of the band on each side of a buffer: a write further out than that is not seen here."""
GUARD = 0xA5
POISON = 0xFF
"""All bits set: a NaN in every floating-point format, -1 in every signed integer."""


class Memory:
    """Buffers on a device by name. A context manager: the device memory lives inside ``with``.

    Args:
        device: where they lie.
        buffers: what the case needs.
        inputs: host arrays for every buffer whose role is input or inout.
    """

    def __init__(self, device: Device, buffers: Sequence[Buffer], inputs: Mapping[str, NDArray[Any]]) -> None:
        self._device = device
        self._buffers = {buffer.array.name: buffer for buffer in buffers}
        self._inputs = inputs
        self._bases: dict[str, int] = {}

    def __enter__(self) -> Self:
        try:
            for name in self._buffers:
                size = self.nbytes(name)
                base = self._bases[name] = self._device.allocate(size + 2 * GUARD_BYTES)
                self._device.fill(base, GUARD_BYTES, GUARD)
                self._device.fill(base + GUARD_BYTES + size, GUARD_BYTES, GUARD)
        except BaseException:
            self._free()
            raise
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        # A lost context has no memory to free, and the attempt would hide what lost it.
        if not (isinstance(error, LaunchError) and error.fatal):
            self._free()

    def _free(self) -> None:
        while self._bases:
            self._device.free(self._bases.popitem()[1])

    def address(self, name: str) -> int:
        """Where the buffer's first element lies, aligned to 256 bytes."""
        return self._bases[name] + GUARD_BYTES

    def nbytes(self, name: str) -> int:
        """The buffer's size without its guard bands."""
        array = self._buffers[name].array
        return int(np.prod(array.shape, dtype=np.int64)) * np.dtype(array.dtype).itemsize

    def reset(self) -> None:
        """Uploads inputs and poisons everything else, as before the very first launch."""
        for name, buffer in self._buffers.items():
            if buffer.role in {Role.INPUT, Role.INOUT}:
                self._device.upload(self.address(name), self._inputs[name])
            else:
                self._device.fill(self.address(name), self.nbytes(name), POISON)

    def read(self, name: str) -> NDArray[Any]:
        """The buffer's present content on the host."""
        array = self._buffers[name].array
        out = np.empty(array.shape, np.dtype(array.dtype))
        self._device.download(self.address(name), out)
        return out

    def write(self, name: str, values: NDArray[Any]) -> None:
        """Replaces the buffer's content, converting to its dtype."""
        array = self._buffers[name].array
        self._device.upload(
            self.address(name), np.ascontiguousarray(np.broadcast_to(values, array.shape), dtype=array.dtype)
        )

    def views(self) -> dict[str, Any]:
        """Every buffer as the array that Python variants take."""
        return {
            name: self._device.view(self.address(name), buffer.array.dtype, buffer.array.shape)
            for name, buffer in self._buffers.items()
        }

    def outputs(self) -> dict[str, NDArray[Any]]:
        """The present content of every buffer that has a reference."""
        return {name: self.read(name) for name, b in self._buffers.items() if b.role in {Role.OUTPUT, Role.INOUT}}

    def require_intact_inputs(self) -> None:
        """Raises ``ResultError`` where a buffer that is an input alone was written to."""
        for name, buffer in self._buffers.items():
            if buffer.role is Role.INPUT:
                now, given = (array.reshape(-1).view(np.uint8) for array in (self.read(name), self._inputs[name]))
                if not np.array_equal(now, given):
                    element = int(np.argmax(now != given)) // np.dtype(buffer.array.dtype).itemsize
                    raise ResultError(
                        f"the case wrote to its input {name!r}, first at element {element}",
                        cure="write to outputs and scratch alone; what is changed in place is an input and an output",
                    )

    def require_intact_guards(self) -> None:
        """Raises ``ResultError`` where anything was written just before or after a buffer."""
        for name, buffer in self._buffers.items():
            size = self.nbytes(name)
            itemsize = np.dtype(buffer.array.dtype).itemsize
            for side, start in (("before", self._bases[name]), ("past", self.address(name) + size)):
                band = np.empty(GUARD_BYTES, np.uint8)
                self._device.download(start, band)
                touched = np.flatnonzero(band != GUARD)
                if touched.size:
                    reach = GUARD_BYTES - int(touched[0]) if side == "before" else int(touched[-1]) + 1
                    edge = "its start" if side == "before" else "its end"
                    raise ResultError(
                        f"out of bounds: the case wrote {side} buffer {name!r}, up to {-(-reach // itemsize)} "
                        f"elements ({reach} bytes) from {edge}",
                        cure="guard the kernel's stores against sizes that are no multiple of its block or tile",
                    )
