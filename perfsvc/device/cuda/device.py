"""One NVIDIA GPU as a ``Device``."""

import atexit
import contextlib
import functools
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Concatenate, Literal, NoReturn, ParamSpec, TypeVar

import numpy as np
import nvtx
import pycuda.driver as drv
from numpy.typing import NDArray

from perfsvc.device import telemetry
from perfsvc.device.cuda import listing, tensor_maps
from perfsvc.device.cuda.arena import Arena, arena_bytes
from perfsvc.device.cuda.arguments import Places, packed, places
from perfsvc.device.cuda.energy import joules_of
from perfsvc.device.cuda.eviction import Eviction
from perfsvc.device.cuda.failures import cure_of, is_of_a_kernel
from perfsvc.device.cuda.helper_kernels import HelperKernels
from perfsvc.device.cuda.results import Results
from perfsvc.device.cuda.stopwatch import Stopwatch
from perfsvc.device.cuda.upload import Uploader
from perfsvc.device.helper_kernels import error_entry
from perfsvc.errors import LaunchError, NoDeviceError
from perfsvc.model import Batch, Conditions, Error, Launch, ReplayRecord, TensorMapArg

P = ParamSpec("P")
R = TypeVar("R")

_PLAIN_SHARED_BYTES = 48 << 10  # beyond it a kernel has to opt in (CUDA C++ Programming Guide, shared memory)
_LEAST_ARENA_BYTES = 64 << 20
_NON_BLOCKING = 1  # a stream that the legacy default stream does not wait for, and that does not wait for it
_LOOK, _SLOW_S, _FASTER = 8, 5e-4, 0.88
_QUEUE_DEPTH = 1000  # the driver takes about a thousand operations (H100, driver 580) before it makes the host wait


@dataclass(frozen=True, slots=True)
class DeviceView:
    """Device memory as libraries take it (CuPy, PyTorch, Numba): ``__cuda_array_interface__``, version 3."""

    address: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "version": 3,
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.address, False),
            "strides": None,
            # A library that was told the stream would wait for it, and so for the blocking kernel; a function queues on it anyway.
            "stream": None,
        }


@dataclass(frozen=True, slots=True)
class _Module:
    """A loaded cubin and its kernels, prepared for the launches that were asked for."""

    loaded: Any
    code: bytes
    kernels: dict[tuple[str, int], tuple[Any, Places | None]] = field(default_factory=dict)


def _translated(
    method: Callable[Concatenate["CudaDevice", P], R],
) -> Callable[Concatenate["CudaDevice", P], R]:
    """Turns PyCUDA's errors into ours: the one place where it happens."""

    @functools.wraps(method)
    def call(self: "CudaDevice", /, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(self, *args, **kwargs)
        except drv.Error as error:
            self._fail(error)

    return call


class CudaDevice:
    """A ``Device`` on one GPU: its primary context, and one stream that everything is queued on.

    A process opens one GPU at a time, and uses it in the thread that opened it.

    Args:
        uuid: which one, as ``GPU-5e…`` or ``MIG-…``.
        helper_kernels: ``perfsvc.device.helper kernels.unit`` compiled for it.

    Raises:
        NoDeviceError: there is no such GPU, or it cannot be opened.
    """

    def __init__(self, uuid: str, helper_kernels: bytes) -> None:
        self._board = telemetry.Board(uuid)  # asked before this process has a context on it, and so is on it itself
        self._open = False
        self._context: Any = None
        try:
            listing.start()
            ordinal = listing.ordinal_of(uuid)
            self.info = listing.describe(ordinal)
            self._context = drv.Device(ordinal).retain_primary_context()
            self._context.push()
            # PyCUDA aborts a process that ends with a context on its stack.
            atexit.register(self.close)
            self._arena_memory, size = _largest(arena_bytes(self.info.memory_bytes))
            self._arena = Arena(int(self._arena_memory or 0), size)
            self._stream = drv.Stream(_NON_BLOCKING)
            self._uploader = Uploader(self._stream)
            ours = HelperKernels(helper_kernels, self.info.multiprocessors)
            self._results, self._aside = Results(ours, self._stream), Results(ours, drv.Stream(_NON_BLOCKING))
            self._eviction = Eviction(ours, self._stream)
            self._stopwatch = Stopwatch(ours, self._stream, self._eviction.queue, self._board.read)
        except NoDeviceError:
            self._board.close()
            raise
        except drv.Error as error:
            self._board.close()
            if self._context:
                self._context.detach()
            raise NoDeviceError(
                f"the GPU {uuid} cannot be opened: {error}",
                cure="see in nvidia-smi whether another process holds it, or its compute cache state forbids it",
            ) from error
        self._board.claim()
        self._open = True
        self._lost = False
        self._allocations: dict[int, Any] = {}
        self._looked = False  # whether this case keeps lines in the cache
        self._last_entry = ""
        self._domain = nvtx.get_domain("perfsvc")

    @property
    def queue_depth(self) -> int:
        """Operations that the driver takes without making the host wait."""
        return _QUEUE_DEPTH

    @property
    def stream(self) -> int:
        """The stream that everything is queued on."""
        return int(self._stream.handle)

    @contextlib.contextmanager
    def measuring(
        self,
        record: ReplayRecord,
        replica: int,
    ) -> Iterator[None]:
        """An NVTX range in the domain ``perfsvc`` that bears the case's id, its benchmark and the replica."""
        case = record.case
        attributes = self._domain.get_event_attributes(message=case.id, category=case.benchmark, payload=replica)
        self._domain.push_range(attributes)
        self._looked = self._eviction.thorough = False
        self._stopwatch.look_aside()  # what happened before is none of this case's business
        try:
            yield
        finally:
            self._domain.pop_range()

    @_translated
    def load(self, code: bytes) -> _Module:
        """Loads a cubin."""
        return _Module(drv.module_from_buffer(code), code)

    @_translated
    def allocate(self, nbytes: int) -> int:
        """Deals device memory from the arena, or allocates it where that is full."""
        return self._arena.allocate(nbytes) or self._allocated(nbytes)

    @_translated
    def allocate_aside(self, nbytes: int) -> int:
        """Allocates device memory outside the arena."""
        return self._allocated(nbytes)

    def _allocated(self, nbytes: int) -> int:
        allocation = drv.mem_alloc(max(nbytes, 1))
        address = int(allocation)
        self._allocations[address] = allocation
        return address

    @_translated
    def free(self, address: int) -> None:
        """Frees what was allocated; all of it goes with the context where that is lost."""
        if self._lost or self._arena.free(address):
            return
        if address not in self._allocations:
            raise LaunchError(f"there is no allocation at {address:#x} to free", cure="free each allocation once")
        self._allocations.pop(address).free()

    @_translated
    def fill(self, address: int, nbytes: int, byte: int) -> None:
        """Queues a memset."""
        drv.memset_d8_async(address, byte, nbytes, self._stream)

    @_translated
    def upload(self, address: int, data: NDArray[Any]) -> None:
        """Queues a copy to the device; the host array may change once this returns."""
        self._uploader.upload(address, data)

    @_translated
    def download(self, address: int, out: NDArray[Any]) -> None:
        """Copies from the device, after all that was queued."""
        drv.memcpy_dtoh_async(out, address, self._stream)
        self._stream.synchronize()

    def view(self, address: int, dtype: str, shape: tuple[int, ...]) -> DeviceView:
        """Device memory for libraries that know ``__cuda_array_interface__``."""
        return DeviceView(address, np.dtype(dtype), shape)

    @_translated
    def set_constant(self, module: _Module, symbol: str, address: int, nbytes: int) -> None:
        """Queues a copy into a ``__constant__`` symbol."""
        target, size = module.loaded.get_global(symbol)
        if nbytes > size:
            raise LaunchError(
                f"the constant {symbol} holds {size} bytes and was given {nbytes}", cure="declare it large enough"
            )
        drv.memcpy_dtod_async(target, address, nbytes, self._stream)

    def tensor_map(self, address: int, arg: TensorMapArg) -> np.generic:
        """A ``CUtensorMap``, as the driver writes it."""
        return tensor_maps.encode(address, arg)

    @_translated
    def launch(self, module: _Module, launch: Launch, args: Sequence[np.generic]) -> None:
        """Queues one launch."""
        self._last_entry = launch.entry
        key = (launch.entry, launch.shared_bytes)
        if key not in module.kernels:
            module.kernels[key] = _prepare(module.loaded, *key), places(module.code, launch.entry)
        kernel, found = module.kernels[key]
        given = packed(launch.entry, found, args)
        # PyCUDA's public calls enter the driver a second time for each launch, through a function it has deprecated.
        kernel._launch_kernel(launch.grid, launch.block, given, launch.shared_bytes, self._stream)  # noqa: SLF001 (as said)

    @_translated
    def synchronize(self) -> None:
        """Waits for the whole context: Python variants may have streams of their own."""
        drv.Context.synchronize()

    @_translated
    def copy(self, target: int, source: int, nbytes: int) -> None:
        """Queues a copy within the device's memory."""
        drv.memcpy_dtod_async(target, source, nbytes, self._stream)

    @_translated
    def digest(self, address: int, nbytes: int) -> str:
        """A fingerprint of device memory, computed there."""
        return self._results.digest(address, nbytes)

    def finds_errors(self, dtype: str, reference_dtype: str) -> bool:
        """Whether there is a kernel for this pair of dtypes."""
        return bool(error_entry(dtype, reference_dtype))

    @_translated
    def error(self, address: int, dtype: str, reference: int, reference_dtype: str, count: int) -> Error | None:
        """The error of a result against its reference, both in device memory, computed there."""
        return self._results.error(address, dtype, reference, reference_dtype, count)

    def expect(self, expected: Mapping[str, NDArray[Any]]) -> None:
        """Nothing: this device computes its results."""

    def now(self) -> float:
        """The monotonic clock."""
        return time.monotonic()

    def rest(self, seconds: float) -> None:
        """Sleeps."""
        time.sleep(seconds)

    def conditions(self) -> Conditions:
        """What the driver says of the GPU."""
        return self._stopwatch.look()

    @_translated
    def batch(
        self,
        sample: Callable[[], None],
        count: int,
        *,
        clock: Literal["device", "host"],
        evict_bytes: int,
        blocked: bool,
    ) -> Batch:
        """Times samples one by one."""
        before_s = 0.0
        if evict_bytes:
            self._eviction.prepare(evict_bytes)
            if blocked and not self._looked:
                before_s = self._look_for_kept_lines(sample, evict_bytes)
                self._eviction.prepare(evict_bytes)
        if clock == "host":
            return self._stopwatch.host_batch(sample, count, evict_bytes=evict_bytes)
        batch = self._stopwatch.batch(sample, count, evict_bytes=evict_bytes, blocked=blocked)
        return replace(batch, busy_s=batch.busy_s + before_s)

    @_translated
    def back_to_back(self, sample: Callable[[], None], count: int) -> float | None:
        """Seconds a sample without anything between them."""
        return self._stopwatch.back_to_back(sample, count)

    @_translated
    def works_elsewhere(self, sample: Callable[[], None], seconds: float, watched: Sequence[tuple[int, int]]) -> bool:
        """Whether the watched memory changes although the stream is held back."""

        def fingerprints() -> list[str]:
            return [self._aside.digest(address, nbytes) for address, nbytes in watched]

        self._stream.synchronize()
        before = fingerprints()
        return self._stopwatch.held_back(sample, seconds, lambda: fingerprints() != before)

    @_translated
    def energy(self, sample: Callable[[], None], seconds: float) -> float | None:
        """Joules a sample by the GPU's own counter; None where it does not count."""
        return joules_of(partial(self._stopwatch.unheld, sample), self._board.energy_j, seconds)

    def _look_for_kept_lines(self, sample: Callable[[], None], evict_bytes: int) -> float:
        """Decides for a case whether evicting has to be thorough: whether it is much slower where it was.

        A cache of 50 MB saves a kernel no more than some 20 µs, so that a slow one need not be asked. Returns the
        seconds that the device was busy.
        """
        medians: list[float] = []
        busy_s = 0.0
        for thorough, count in ((False, 2), (False, _LOOK), (True, _LOOK)):
            self._eviction.thorough = thorough
            batch = self._stopwatch.batch(sample, count, evict_bytes=evict_bytes, blocked=True)
            busy_s += batch.busy_s
            medians = [*medians[-1:], statistics.median(batch.samples_s[-count + 1 :])]
            if not batch.kept_ahead or medians[-1] > _SLOW_S:
                medians = []
                break
        self._eviction.thorough = bool(medians) and medians[0] < _FASTER * medians[1]
        self._looked = True
        return busy_s

    def _fail(self, error: Exception) -> NoReturn:
        """Raises ``error`` as ours. It is fatal if the context answers no more: CUDA repeats such an error for ever."""
        try:
            drv.Context.synchronize()
        except drv.Error:
            self._lost = True
        text = str(error)
        of_kernel = self._lost or is_of_a_kernel(text)
        where = f" (last launch: {self._last_entry})" if self._last_entry and of_kernel else ""
        raise LaunchError(f"{text}{where}", cure=cure_of(text), fatal=self._lost) from error

    def close(self) -> None:
        """Gives everything back, also when the context is lost."""
        if not self._open:
            return
        self._open = False
        atexit.unregister(self.close)
        self._stopwatch.close()
        if not self._lost:
            self._uploader.close()
            for address in list(self._allocations):
                self.free(address)
            if self._arena_memory:
                self._arena_memory.free()
        # Without its context PyCUDA drops what is left without asking the driver, which would answer with errors.
        with contextlib.suppress(drv.Error):
            self._context.detach()
        self._allocations.clear()
        self._board.close()


def _largest(nbytes: int) -> tuple[Any, int]:
    """So much memory, or the largest half of a half of it that there is; nothing where even little is not there."""
    while nbytes >= _LEAST_ARENA_BYTES:
        try:
            return drv.mem_alloc(nbytes), nbytes
        except drv.MemoryError:
            nbytes //= 2
    return None, 0


def _prepare(module: Any, entry: str, shared_bytes: int) -> Any:
    kernel = module.get_function(entry)
    if shared_bytes > _PLAIN_SHARED_BYTES:
        opt_in = drv.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES
        # Never lowered: another launch of this kernel may need more.
        kernel.set_attribute(opt_in, max(shared_bytes, kernel.get_attribute(opt_in)))
    return kernel
