"""The protocol of all devices.

Memory is addressed by plain integers, so that ``perfsvc.measure`` implements guard bands, poison and slices once for
all devices. ``download``, ``synchronize`` and methods that return a value wait for the device; all others may return
before the device is done. Every method may raise ``LaunchError``; if its ``fatal`` is True, this process can no longer
use the device.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from perfsvc.model import Batch, Conditions, DeviceInfo, Error, Launch, ReplayRecord, TensorMapArg

Reduction = Literal["sum", "min", "max"]
Module = Any
"""A loaded binary; only the device that loaded it knows its type."""

GraphStep = tuple[str, Callable[[], object]]
"""A step to capture: what messages call it, and a function that queues its work."""


class Graph(Protocol):
    """The work of some steps, captured once and replayed as a whole."""

    def launch(self) -> None:
        """Queue a replay."""
        ...

    def seconds(self) -> float:
        """Return the sum of the steps' times in the last replay, which has ended.

        Only for a graph whose steps were captured ``apart``.
        """
        ...

    def close(self) -> None:
        """Free the graph; it cannot be used afterwards."""
        ...


class Device(Protocol):
    """A device opened by this process."""

    @property
    def info(self) -> DeviceInfo:
        """The device's description."""
        ...

    @property
    def stream(self) -> int:
        """The address of the stream that everything is queued on, as libraries take it; 0 if there are no streams."""
        ...

    def on(self, gpu: int) -> "Device":
        """Return one GPU of a group by its position, for all work on this GPU; any other device returns itself."""
        ...

    def fork(self) -> None:
        """Have the other GPUs of a group wait for what is queued on the lead, so that a sample begins on all of them.

        Do nothing if the device is no group; ``join`` likewise.
        """
        ...

    def join(self) -> None:
        """Have the lead of a group wait for what is queued on the other GPUs, so that a sample ends on the lead."""
        ...

    def require_access(self, gpu: int, other: int) -> None:
        """Raise ``LaunchError`` if kernels of a GPU of a group cannot access the memory of another one."""
        ...

    def peer_copy(self, target: tuple[int, int], source: tuple[int, int], nbytes: int) -> None:
        """Queue a copy from a GPU of a group to another one; both places are the position of a GPU and an address."""
        ...

    def all_reduce(
        self, sources: Sequence[int], targets: Sequence[int], dtype: str, count: int, operation: Reduction
    ) -> None:
        """Queue an all-reduce of ``count`` elements on every GPU of a group; the addresses are in the GPUs' order."""
        ...

    @property
    def page_bytes(self) -> int:
        """The size of the pages in which the device's memory is mapped."""
        ...

    def measuring(self, record: ReplayRecord, replica: int) -> AbstractContextManager[None]:
        """Enclose all work of one case in one replica: an NVTX range on CUDA, the choice of the script on the fake."""
        ...

    def expect(self, expected: Mapping[str, NDArray[Any]]) -> None:
        """Announce the expected results of later launches, by buffer name; the fake device returns them as results."""
        ...

    def load(self, code: bytes) -> Module:
        """Load a binary that ``perfsvc.build`` made for this device's target."""
        ...

    def allocate(self, nbytes: int) -> int:
        """Allocate device memory for timed work, aligned to 256 bytes, and return its address.

        On a device where the address of an array changes the time of a kernel, equal requests get equal addresses.
        """
        ...

    def allocate_untimed(self, nbytes: int) -> int:
        """Allocate device memory that no timed work uses."""
        ...

    def free(self, address: int) -> None:
        """Free allocated memory."""
        ...

    def fill(self, address: int, nbytes: int, byte: int) -> None:
        """Set each of ``nbytes`` bytes to ``byte``."""
        ...

    def upload(self, address: int, data: NDArray[Any]) -> None:
        """Copy a C-contiguous host array to the device."""
        ...

    def download(self, address: int, out: NDArray[Any]) -> None:
        """Copy from the device into a C-contiguous host array and wait for it."""
        ...

    def view(self, address: int, dtype: str, shape: tuple[int, ...]) -> Any:
        """Return device memory as the array that Python variants get (``__cuda_array_interface__``, or an ndarray)."""
        ...

    def set_constant(self, module: Module, symbol: str, address: int, nbytes: int) -> None:
        """Copy device memory into a ``__constant__`` symbol of a module."""
        ...

    def tensor_map(self, address: int, arg: TensorMapArg) -> np.generic:
        """Return the launch argument with which a kernel fetches boxes of the matrix at ``address``."""
        ...

    def launch(self, module: Module, launch: Launch, args: Sequence[np.generic]) -> None:
        """Queue one launch; ``args`` are the values of ``launch.args``, with addresses as ``np.uint64``."""
        ...

    def synchronize(self) -> None:
        """Wait until all queued work is done."""
        ...

    def copy(self, target: int, source: int, nbytes: int) -> None:
        """Copy device memory; source and target do not overlap."""
        ...

    def digest(self, address: int, nbytes: int) -> str:
        """Return a fingerprint of ``nbytes`` bytes, equal for equal bytes, computed on the device."""
        ...

    def can_compute_error(self, dtype: str, reference_dtype: str) -> bool:
        """Return whether ``error`` can compare these dtypes; if not, the host computes the error."""
        ...

    def error(self, address: int, dtype: str, reference: int, reference_dtype: str, count: int) -> Error | None:
        """Return the error of ``count`` elements in device memory against a reference in device memory.

        The error of an element is |out − ref| / max(|ref|, rms(ref)); the result has the maximum and the mean. Returns
        None if only the host can compute the error of these numbers.
        """
        ...

    def uses_other_streams(
        self, sample: Callable[[], None], seconds: float, watched: Sequence[tuple[int, int]]
    ) -> bool:
        """Return whether ``sample`` does work on any other stream than ``stream``.

        The device holds the stream back, queues the sample, waits ``seconds``, checks whether any of the ``watched``
        pieces of memory (address, bytes) has changed, and then releases the stream. Returns False on a device without
        streams.
        """
        ...

    def now(self) -> float:
        """Return seconds on a monotonic clock, which time caps use. The fake device's clock follows its script."""
        ...

    def rest(self, seconds: float) -> None:
        """Wait for ``seconds`` on the clock of ``now``."""
        ...

    def conditions(self) -> Conditions:
        """Return the device's present conditions (clocks, temperature, power, …)."""
        ...

    @property
    def queue_depth(self) -> int:
        """How many operations can be queued before the host has to wait; 0 if nothing is ever queued."""
        ...

    def batch(
        self,
        sample: Callable[[], None],
        count: int,
        *,
        clock: Literal["device", "host"],
        evict_bytes: int,
        blocked: bool,
        before: Callable[[int], None] | None = None,
        restore: Callable[[], None] | None = None,
        seconds: Callable[[], float] | None = None,
    ) -> Batch:
        """Run ``sample`` ``count`` times, and time each run by itself.

        Args:
            sample: queues the work of one sample.
            count: how many samples.
            clock: ``device`` times a sample between two events on the stream; ``host`` times it end to end, with a
                synchronisation.
            evict_bytes: bytes written before each sample, outside the timed part, so that the cache holds none of the
                sample's data; 0 leaves the cache warm.
            blocked: queue each sample behind a kernel that blocks the stream until the sample is queued. If the host
                does not finish queueing in time, the kernel ends by itself; then the batch ends early, and
                ``kept_ahead`` is False.
            before: called before each sample with the sample's number, counted from 0. It may queue work, which is not
                timed.
            restore: queues copies that undo what ``sample`` changes in its inputs. It is called before each run of
                ``sample``, also before a run that fills the cache, and is not timed.
            seconds: returns the seconds of the sample that has just ended, for samples that time themselves. Without
                it, the device times them. The fake device's script has the times in any case.
        """
        ...

    def capture(self, steps: Sequence[GraphStep], *, apart: bool = False, evict_bytes: int = 0) -> Graph:
        """Return what steps queue, one after the other, as a graph. No step runs before the graph is launched.

        A device without streams has no graphs: there, a replay runs the steps one after the other.

        Args:
            steps: the steps; each has run at least once before, so that all its code is loaded.
            apart: let each replay time each step by itself. On a GPU, each step is then between two events.
            evict_bytes: bytes written before each step, outside the time of any step; as in ``batch``.

        Raises:
            LaunchError: a step cannot be captured, for example because it waits for the GPU. The device can still be
                used.
        """
        ...

    def back_to_back(self, sample: Callable[[], None], count: int) -> float | None:
        """Return seconds per sample of ``count`` samples without pauses, queued behind a kernel that blocks the stream.

        Returns None if the host did not queue them in time, so that the blocking kernel ended by itself.
        """
        ...

    def energy(self, sample: Callable[[], None], seconds: float) -> float | None:
        """Return joules per sample, from samples that fill at least ``seconds``; None if the GPU counts no energy."""
        ...

    def close(self) -> None:
        """Free everything; the device cannot be used afterwards."""
        ...
