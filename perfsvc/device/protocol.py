"""What every device can do.

Memory is addressed by plain integers so that guard bands, poison and slices are written once, in ``perfsvc.measure``,
for all devices. Everything but ``download``, ``synchronize`` and what returns a value may return before the device has
done it. Every method may raise ``LaunchError``; ``fatal`` says that this process cannot go on using the device.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from perfsvc.model import Batch, Conditions, DeviceInfo, Error, Launch, ReplayRecord, TensorMapArg

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

    def measuring(self, record: ReplayRecord, replica: int) -> AbstractContextManager[None]:
        """Encloses all work of one case in one replica: an NVTX range on CUDA, the choice of the script on the fake."""
        ...

    def expect(self, expected: Mapping[str, NDArray[Any]]) -> None:
        """Says what launches from now on should come to, by buffer name: the fake device hands it out as its own."""
        ...

    def load(self, code: bytes) -> Module:
        """Loads a binary that ``perfsvc.build`` made for this device's target."""
        ...

    def allocate(self, nbytes: int) -> int:
        """Allocates device memory for what is timed, aligned to 256 bytes, and returns its address.

        On a device where the place of an array moves times, the same requests lead to the same places.
        """
        ...

    def allocate_aside(self, nbytes: int) -> int:
        """Allocates device memory that nothing timed uses."""
        ...

    def free(self, address: int) -> None:
        """Frees what was allocated."""
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

    def tensor_map(self, address: int, arg: TensorMapArg) -> np.generic:
        """The argument for ``launch`` by which a kernel fetches boxes of a matrix that begins at ``address``."""
        ...

    def launch(self, module: Module, launch: Launch, args: Sequence[np.generic]) -> None:
        """Queues one launch; ``args`` are ``launch.args`` resolved, addresses as ``np.uint64``."""
        ...

    def synchronize(self) -> None:
        """Waits until all that was queued is done."""
        ...

    def copy(self, target: int, source: int, nbytes: int) -> None:
        """Copies device memory; the two do not overlap."""
        ...

    def digest(self, address: int, nbytes: int) -> str:
        """A fingerprint of ``nbytes`` bytes, equal for equal bytes; computed where they lie."""
        ...

    def finds_errors(self, dtype: str, reference_dtype: str) -> bool:
        """Whether ``error`` can compare these; where not, the host does it."""
        ...

    def error(self, address: int, dtype: str, reference: int, reference_dtype: str, count: int) -> Error | None:
        """The error of ``count`` elements of device memory against a reference in device memory.

        Computed where they lie, by the definition of ``perfsvc.measure.worker.check.error_of``. None where the numbers are
        such that only the host can tell.
        """
        ...

    def works_elsewhere(self, sample: Callable[[], None], seconds: float, watched: Sequence[tuple[int, int]]) -> bool:
        """Whether ``sample`` does its work anywhere but on ``stream``.

        Holds the stream back, queues the sample, waits ``seconds`` and looks whether any of the ``watched`` pieces of
        memory (address, bytes) has changed; then lets it go on. False on a device without streams.
        """
        ...

    def now(self) -> float:
        """Seconds on a clock that never goes back: what time caps count. The fake device's goes by its script."""
        ...

    def rest(self, seconds: float) -> None:
        """Lets ``seconds`` pass on that clock."""
        ...

    def conditions(self) -> Conditions:
        """What the device is like at this moment."""
        ...

    @property
    def queue_depth(self) -> int:
        """How many operations can be queued before the host is made to wait; 0 where nothing is ever queued."""
        ...

    def batch(
        self,
        sample: Callable[[], None],
        count: int,
        *,
        clock: Literal["device", "host"],
        evict_bytes: int,
        blocked: bool,
    ) -> Batch:
        """Times ``sample`` ``count`` times, each by itself.

        Args:
            sample: queues the work of one sample.
            count: how many samples.
            clock: ``device`` between two events on the stream; ``host`` end to end, with a synchronisation.
            evict_bytes: bytes written before each sample, outside the timed part, so that the cache holds nothing of
                it; 0 leaves the cache warm.
            blocked: queue each sample behind the blocking kernel. Where the blocking kernel opens by itself, since the host did not come to
                an end in time, the batch ends there and ``kept_ahead`` is false.
        """
        ...

    def back_to_back(self, sample: Callable[[], None], count: int) -> float | None:
        """Seconds a sample where ``count`` of them are queued behind the blocking kernel without anything between them.

        None where the blocking kernel opened by itself.
        """
        ...

    def energy(self, sample: Callable[[], None], seconds: float) -> float | None:
        """Joules a sample where samples fill at least ``seconds``; None where the GPU does not count energy."""
        ...

    def close(self) -> None:
        """Gives everything back; the device cannot be used after it."""
        ...
