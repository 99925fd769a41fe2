"""Device memory: the guarded buffers of one case, and arrays that are kept on the device from case to case."""

import random
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from perfsvc.device.memory import array_bytes
from perfsvc.device.protocol import Device
from perfsvc.errors import LaunchError, ResultError
from perfsvc.model import Array, Buffer, Role

GUARD_BYTES = 64 << 10
"""Size of the guard band on each side of a buffer. A write further outside is not detected."""
GUARD = 0xA5
PLACES_PAGES = 32
"""How many pages further an array can lie at another place."""
POISON = 0xFF
"""All bits set: a NaN in every floating-point format, -1 in every signed integer."""


class CaseMemory:
    """The buffers of one case by name, each between two guard bands. They exist inside the ``with`` block.

    Args:
        device: the device that has the memory.
        buffers: the buffers that the case needs.
        make_room: frees other memory of the device; called if the buffers do not fit.
        places: at how many places ``move`` can put the buffers.

    Attributes:
        places: as above; 1 if the device has no room for more.
    """

    def __init__(
        self,
        device: Device,
        buffers: Sequence[Buffer],
        make_room: Callable[[], object] | None = None,
        *,
        places: int = 1,
    ) -> None:
        self._device = device
        self._make_room = make_room
        self._buffers = {buffer.array.name: buffer for buffer in buffers}
        self._nbytes = {name: array_bytes(buffer.array) for name, buffer in self._buffers.items()}
        self._guard = ""
        self._bases: dict[str, int] = {}
        self._offsets = dict.fromkeys(self._buffers, 0)
        self._held: dict[Hashable, tuple[Device, int]] = {}
        self.places = places

    def __enter__(self) -> Self:
        """Allocate the buffers; if they do not fit, free other memory, and then do with one place."""
        try:
            self._allocate()
        except LaunchError as error:
            if error.fatal or not (self._make_room or self.places > 1):
                raise
            if self._make_room:
                self._make_room()
            try:
                self._allocate()
            except LaunchError as second:
                if second.fatal or self.places == 1:
                    raise
                self.places = 1
                self._allocate()
        return self

    def _allocate(self) -> None:
        """Allocate each buffer with guard bands and room to move, and a copy of each that the case changes in place.

        Free all of them if one does not fit.
        """
        room = PLACES_PAGES * self._device.page_bytes if self.places > 1 else 0
        try:
            for name in self._buffers:
                self._bases[name] = self.device(name).allocate(self.nbytes(name) + 2 * GUARD_BYTES + room)
            for name in self.names(Role.INOUT):
                device = self.device(name)
                self._held[name] = device, device.allocate_untimed(self.nbytes(name))
            self.move(0)
        except BaseException:
            self._free()
            raise

    def move(self, place: int) -> None:
        """Put every buffer, with its guard bands, at a place. The contents are undefined afterwards.

        A place is an offset of whole pages for each buffer. The offsets are random, but the same in all processes: the
        time of a kernel depends on how its arrays lie to each other, and a single place would make an accident of
        addresses the level. At place 0 all offsets are 0.

        Source:
            C. Curtsinger and E. D. Berger (2013), Stabilizer: statistically sound performance evaluation, ASPLOS.
        """
        for number, name in enumerate(self._buffers):
            offsets = random.Random(f"place {place} of buffer {number}")  # noqa: S311 - no secret
            pages = offsets.randrange(PLACES_PAGES) if place else 0
            self._offsets[name] = pages * self._device.page_bytes
            start, device = self.address(name), self.device(name)
            device.fill(start - GUARD_BYTES, GUARD_BYTES, GUARD)
            device.fill(start + self.nbytes(name), GUARD_BYTES, GUARD)
            self._guard = self._guard or device.digest(start - GUARD_BYTES, GUARD_BYTES)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        # A lost context has no memory to free. An attempt to free it would fail and hide the first error.
        if not (isinstance(error, LaunchError) and error.fatal):
            self._free()

    def _free(self) -> None:
        while self._bases:
            name, address = self._bases.popitem()
            self.device(name).free(address)
        while self._held:
            _, (device, address) = self._held.popitem()
            device.free(address)

    def address(self, name: str) -> int:
        """Return the address of the buffer's first element, aligned to 256 bytes."""
        return self._bases[name] + self._offsets[name] + GUARD_BYTES

    def gpu(self, name: str) -> int:
        """Return the position of the GPU that has the buffer; 0 unless the device is a group."""
        return self._buffers[name].gpu

    def device(self, name: str) -> Device:
        """Return the device that has the buffer: a GPU of the group, or the device itself."""
        return self._device.on(self.gpu(name))

    def nbytes(self, name: str) -> int:
        """Return the buffer's size without its guard bands."""
        return self._nbytes[name]

    def hold(self, device: Device, key: Hashable, content: bytes) -> int:
        """Copy bytes to a device, over those of an earlier call with this key, and return their address."""
        if key not in self._held:
            self._held[key] = device, device.allocate_untimed(len(content))
        _, address = self._held[key]
        device.upload(address, np.frombuffer(content, np.uint8))
        return address

    def reset(self, load: Callable[[str, int], None]) -> None:
        """Prepare all buffers for a first launch: load inputs with ``load(name, address)``, and poison the others."""
        for name, buffer in self._buffers.items():
            if buffer.role is Role.INPUT:
                load(name, self.address(name))
            elif buffer.role is Role.INOUT:
                load(name, self._held[name][1])
            else:
                self.device(name).fill(self.address(name), self.nbytes(name), POISON)
        self.restore()

    def restore(self) -> None:
        """Queue copies of what ``reset`` loaded into the buffers that the case changes in place."""
        self._device.fork()  # another GPU of a group may still use the buffers
        for name in self.names(Role.INOUT):
            self.device(name).copy(self.address(name), self._held[name][1], self.nbytes(name))
        self._device.join()

    def read(self, name: str) -> NDArray[Any]:
        """Return the buffer's present content on the host."""
        array = self._buffers[name].array
        out = np.empty(array.shape, np.dtype(array.dtype))
        self.device(name).download(self.address(name), out)
        return out

    def write(self, name: str, values: NDArray[Any]) -> None:
        """Replace the buffer's content with ``values``, converted to the buffer's dtype."""
        array = self._buffers[name].array
        self.device(name).upload(
            self.address(name), np.ascontiguousarray(np.broadcast_to(values, array.shape), dtype=array.dtype)
        )

    def views(self) -> dict[str, Any]:
        """Return every buffer, by name, as the array that Python variants take."""
        return {
            name: self.device(name).view(self.address(name), buffer.array.dtype, buffer.array.shape)
            for name, buffer in self._buffers.items()
        }

    def names(self, *roles: Role) -> tuple[str, ...]:
        """Return the names of the buffers with one of these roles."""
        return tuple(name for name, buffer in self._buffers.items() if buffer.role in roles)

    def array(self, name: str) -> Array:
        """Return a buffer's name, dtype and shape."""
        return self._buffers[name].array

    def digests(self, *roles: Role) -> dict[str, str]:
        """Return digests of the present content of the buffers with one of these roles, by name."""
        return {name: self.device(name).digest(self.address(name), self.nbytes(name)) for name in self.names(*roles)}

    def require_intact_guards(self) -> None:
        """Raise ``ResultError`` if anything was written just before or after a buffer."""
        for name in self._buffers:
            start = self.address(name)
            for side, band in (("before", start - GUARD_BYTES), ("past", start + self.nbytes(name))):
                if self.device(name).digest(band, GUARD_BYTES) != self._guard:
                    raise self._overrun(name, side, band)

    def _overrun(self, name: str, side: str, start: int) -> ResultError:
        """Return the error for the changed guard band at ``start``, with the distance of the furthest changed byte."""
        band = np.empty(GUARD_BYTES, np.uint8)
        self.device(name).download(start, band)
        touched = np.flatnonzero(band != GUARD)
        reach = GUARD_BYTES - int(touched[0]) if side == "before" else int(touched[-1]) + 1
        edge = "its start" if side == "before" else "its end"
        elements = -(-reach // np.dtype(self.array(name).dtype).itemsize)
        return ResultError(
            f"out of bounds: the case wrote {side} buffer {name!r}, up to {elements} elements ({reach} bytes) "
            f"from {edge}",
            cure="guard the kernel's stores against sizes that are no multiple of its block or tile",
        )


class DeviceArrayCache:
    """Keeps arrays on the device, so that each is uploaded only once; drops the least recently used first.

    Args:
        device: the device that has the memory.
        budget_bytes: the most memory to use, on all GPUs of a group together; 0 keeps nothing.
    """

    def __init__(self, device: Device, budget_bytes: int) -> None:
        self._device = device
        self._budget = budget_bytes
        self._cached: OrderedDict[tuple[int, Hashable], tuple[int, int]] = OrderedDict()  # address and size

    def load(self, key: Hashable, array: NDArray[Any], target: int, gpu: int = 0) -> None:
        """Copy a host array to a device address, from the cache if possible. Equal keys mean equal content.

        ``gpu`` is the position of the GPU that has the address, in a group; the copy in the cache is there too.
        """
        if (address := self.address(key, array, gpu)) is None:
            self._device.on(gpu).upload(target, np.ascontiguousarray(array))
        else:
            self._device.on(gpu).copy(target, address, array.nbytes)

    def has_room(self, nbytes: int) -> bool:
        """Return whether arrays of ``nbytes`` bytes in total can all be kept."""
        return nbytes <= self._budget

    def clear(self) -> None:
        """Free all cached arrays."""
        while self._cached:
            self._drop(last=True)

    def _drop(self, *, last: bool) -> None:
        """Free the cached array that was used last, or the one that was not used for the longest time."""
        (gpu, _), (address, _) = self._cached.popitem(last=last)
        self._device.on(gpu).free(address)

    def address(self, key: Hashable, array: NDArray[Any], gpu: int = 0) -> int | None:
        """Return the device address of a copy of a host array, valid until the next call; None if there is no room.

        Raises:
            LaunchError: the device's context is lost.
        """
        place = gpu, key
        if place not in self._cached:
            if array.nbytes > self._budget:
                return None
            while sum(nbytes for _, nbytes in self._cached.values()) + array.nbytes > self._budget:
                self._drop(last=False)
            device = self._device.on(gpu)
            try:
                address = device.allocate_untimed(array.nbytes)
            except LaunchError as error:
                if error.fatal:
                    raise
                return None  # the device has less free memory than the budget
            device.upload(address, np.ascontiguousarray(array))
            self._cached[place] = (address, array.nbytes)
        self._cached.move_to_end(place)
        return self._cached[place][0]
