"""What every device can do.

Memory is addressed by plain integers so that guard bands, poison and slices are written once, in ``perfsvc.measure``,
for all devices. Everything but ``download``, ``synchronize`` and ``time`` may return before the device has done it.
Every method may raise ``LaunchError``; ``fatal`` says that this process cannot go on using the device.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from perfsvc.model import DeviceInfo, Launch, ReplayRecord

Module = Any
"""A loaded binary: opaque, of the device that loaded it."""


class Device(Protocol):
    """A device opened by this process."""

    @property
    def info(self) -> DeviceInfo:
        """What the device says of itself."""
        ...

    @property
    def stream(self) -> int:
        """The stream that everything is queued on, as the address that libraries take; 0 where there are none."""
        ...

    def measuring(
        self, record: ReplayRecord, replica: int, expected: Mapping[str, NDArray[Any]]
    ) -> AbstractContextManager[None]:
        """Encloses all work of one case in one replica: an NVTX range on CUDA, the choice of the script on the fake.

        ``expected`` are the reference results by buffer name, which the fake device hands out as its own.
        """
        ...

    def load(self, code: bytes) -> Module:
        """Loads a binary that ``perfsvc.build`` made for this device's target."""
        ...

    def allocate(self, nbytes: int) -> int:
        """Allocates device memory, aligned to 256 bytes, and returns its address."""
        ...

    def free(self, address: int) -> None:
        """Frees what ``allocate`` returned."""
        ...

    def fill(self, address: int, nbytes: int, byte: int) -> None:
        """Sets each of ``nbytes`` bytes to ``byte``."""
        ...

    def upload(self, address: int, data: NDArray[Any]) -> None:
        """Copies a C-contiguous host array to the device."""
        ...

    def download(self, address: int, out: NDArray[Any]) -> None:
        """Copies from the device into a C-contiguous host array and waits for it."""
        ...

    def view(self, address: int, dtype: str, shape: tuple[int, ...]) -> Any:
        """Device memory as the array that Python variants are given (``__cuda_array_interface__``, or an ndarray)."""
        ...

    def set_constant(self, module: Module, symbol: str, address: int, nbytes: int) -> None:
        """Copies device memory into a ``__constant__`` symbol of a module."""
        ...

    def launch(self, module: Module, launch: Launch, args: Sequence[np.generic]) -> None:
        """Queues one launch; ``args`` are ``launch.args`` resolved, addresses as ``np.uint64``."""
        ...

    def synchronize(self) -> None:
        """Waits until all that was queued is done."""
        ...

    def time(
        self, sample: Callable[[], None], count: int, *, clock: Literal["device", "host"], cold: bool
    ) -> list[float]:
        """Times ``sample`` ``count`` times and returns seconds, one a call.

        Args:
            sample: queues the work of one sample.
            count: how many samples, each timed by itself.
            clock: ``device`` between two events on the stream; ``host`` end to end, with a synchronisation.
            cold: evict the L2 cache before each sample, outside the timed part.
        """
        ...

    def close(self) -> None:
        """Gives everything back; the device cannot be used after it."""
        ...
