"""One NVIDIA GPU as a ``Device``."""

import atexit
import contextlib
import functools
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Concatenate, Literal, NoReturn, ParamSpec, TypeVar

import numpy as np
import nvtx
import pycuda.driver as drv
from numpy.typing import NDArray

from perfsvc.device import NVTX_DOMAIN, telemetry
from perfsvc.device.arguments import encode_tensor_map, pack
from perfsvc.device.cuda import graphs, listing
from perfsvc.device.cuda.driver import DriverError
from perfsvc.device.cuda.helper_kernels import HelperKernels, Results
from perfsvc.device.cuda.memory import Eviction, Uploader
from perfsvc.device.cuda.modules import CudaModule
from perfsvc.device.cuda.timing import SampleTimer
from perfsvc.device.groups import OneDevice
from perfsvc.device.memory import PAGE_BYTES, Arena, arena_bytes, error_entry
from perfsvc.device.protocol import Graph, GraphStep
from perfsvc.dtypes import bits
from perfsvc.errors import LaunchError, NoDeviceError
from perfsvc.model import Batch, Conditions, Error, Launch, ReplayRecord, TensorMapArg

_CURES = {
    "illegal memory access": "run the case under compute-sanitizer: a thread reads or writes outside its buffers",
    "misaligned address": "align the addresses of vector loads and stores (float4)",
    "illegal instruction": "build the case again for this GPU",
    "invalid argument": "compare grid, block and dynamic shared memory with what `perfsvc devices` shows",
    "too many resources": "use fewer threads a block, or bound its registers with __launch_bounds__",
    "out of memory": "choose a smaller point, or free the GPU of other processes (nvidia-smi)",
    "timed out": "make the launch shorter, or run on a GPU without a display",
    "assert": "the kernel's own assert failed: its message is in the worker's output",
    "symbol not found": "correct the name of the kernel or of the __constant__ variable, and build the case again",
    "cooperative launch": "launch fewer blocks: all of them must fit on the GPU at once (occupancy x multiprocessors)",
    "cluster": "use smaller clusters, fewer threads or less shared memory: a cluster runs on one part (GPC) of the GPU",
    "PTX": "build the case again for this GPU",
    "image is invalid": "build the case again for this GPU",
    "no kernel image": "build the case for this GPU's architecture",
    "ECC": "take the GPU out of service and look at nvidia-smi -q -d ECC",
}
_OTHER_CURE = "run the case under compute-sanitizer, and see dmesg for the driver's own report (Xid)"
_KERNEL_CALLS = ("cuLaunchKernel", "cuModuleGetFunction", "cuFunc")
"""The driver calls that concern the kernel of a launch, and not only the device."""


def launch_error(text: str, entry: str, *, lost: bool) -> LaunchError:
    """Return the error for a failed driver call.

    Args:
        text: the name of the call, and the driver's message: ``cuLaunchKernel failed: invalid argument``.
        entry: the kernel of the last launch; empty if there was no launch.
        lost: whether the context is lost. The failed call may then be any call after the kernel at fault.
    """
    by_kernel = lost or text.startswith(_KERNEL_CALLS)
    where = f" (last launch: {entry})" if entry and by_kernel else ""
    cure = next((cure for sign, cure in _CURES.items() if sign in text), _OTHER_CURE)
    return LaunchError(f"{text}{where}", cure=cure, fatal=lost)


@dataclass(frozen=True, slots=True)
class DeviceView:
    """Device memory for libraries (CuPy, PyTorch, Numba): ``__cuda_array_interface__``, version 3.

    The interface has no bfloat16 and float8: it describes them as integers of the same bits.
    """

    address: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """The description of the memory, for libraries."""
        return {
            "version": 3,
            "shape": self.shape,
            "typestr": bits(self.dtype).str,
            "data": (self.address, False),
            "strides": None,
            # A library that knows the stream would wait for it, and so for the blocking kernel.
            "stream": None,
        }


P = ParamSpec("P")
R = TypeVar("R")

_LEAST_ARENA_BYTES = 64 << 20
_NON_BLOCKING = 1  # neither this stream nor the legacy default stream waits for the other
_QUEUE_DEPTH = 1000  # the driver takes about a thousand operations (H100, driver 580) before it makes the host wait


def _translated(
    method: Callable[Concatenate["CudaDevice", P], R],
) -> Callable[Concatenate["CudaDevice", P], R]:
    """Turn the errors of PyCUDA and of the driver in a method into ``LaunchError``."""

    @functools.wraps(method)
    def call(self: "CudaDevice", /, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            if not self._steps_aside:
                return method(self, *args, **kwargs)
            with self.activated():
                return method(self, *args, **kwargs)
        except (drv.Error, DriverError) as error:
            self._fail(error)

    return call


class CudaDevice(OneDevice):
    """A ``Device`` on one GPU: its primary context, and one stream that everything is queued on.

    A process opens one GPU, or the GPUs of one group, and uses them in the thread that opened them.

    Args:
        uuid: the UUID of the GPU or MIG instance, ``GPU-5e…`` or ``MIG-…``.
        helper_kernels: ``perfsvc.device.memory.unit`` compiled for the device.

    Raises:
        NoDeviceError: there is no such GPU, or it cannot be opened.
    """

    def __init__(self, uuid: str, helper_kernels: bytes) -> None:
        # GpuTelemetry lists the GPU's processes before this process has a context, and later recognises this process
        # as the new one.
        self._telemetry = telemetry.GpuTelemetry(uuid)
        self._open = False
        self._steps_aside = False
        self._context: Any = None
        try:
            listing.start()
            ordinal = listing.ordinal_of(uuid)
            self.info = listing.describe(ordinal)
            self._context = drv.Device(ordinal).retain_primary_context()
            self._context.push()
            # PyCUDA aborts a process that ends with a context on its stack.
            atexit.register(self.close)
            self._arena_memory, size = _allocate_arena(arena_bytes(self.info.memory_bytes))
            self._arena = Arena(int(self._arena_memory or 0), size)
            self._stream = drv.Stream(_NON_BLOCKING)
            self._uploader = Uploader(self._stream)
            kernels = HelperKernels(helper_kernels, self.info.multiprocessors)
            self._results = Results(kernels, self._stream)
            self._results_on_other_stream = Results(kernels, drv.Stream(_NON_BLOCKING))
            self._eviction = Eviction(self._stream)
            self._timer = SampleTimer(kernels, self._stream, self._eviction, self._telemetry.read)
        except NoDeviceError:
            self._telemetry.close()
            raise
        except drv.Error as error:
            self._telemetry.close()
            if self._context:
                self._context.detach()
            raise NoDeviceError(
                f"the GPU {uuid} cannot be opened: {error}",
                cure="see in nvidia-smi whether another process holds it, or its compute mode forbids it",
            ) from error
        self._telemetry.recognise_own_process()
        self._open = True
        self._lost = False
        self._allocations: dict[int, Any] = {}
        self._modules: weakref.WeakSet[CudaModule] = weakref.WeakSet()
        self._last_entry = ""
        self._domain = nvtx.get_domain(NVTX_DOMAIN)

    @property
    def queue_depth(self) -> int:
        """How many operations the driver takes before it makes the host wait."""
        return _QUEUE_DEPTH

    @property
    def page_bytes(self) -> int:
        """The size of the pages in which the driver maps memory."""
        return PAGE_BYTES

    @property
    def stream(self) -> int:
        """The stream that everything is queued on."""
        return int(self._stream.handle)

    def step_aside(self) -> None:
        """Make room for the context of another GPU of the group; from now on, each call brings its own context."""
        drv.Context.pop()
        self._steps_aside = True
        atexit.unregister(self.close)  # the group closes its GPUs in order

    @contextlib.contextmanager
    def activated(self) -> Iterator[None]:
        """Make the GPU's context the current one during the block."""
        if not self._steps_aside:
            yield
            return
        self._context.push()
        try:
            yield
        finally:
            drv.Context.pop()

    @_translated
    def evict(self, nbytes: int) -> None:
        """Queue a write of ``nbytes`` that empties the L2 cache."""
        self._eviction.prepare(nbytes)
        self._eviction.queue(nbytes)

    @contextlib.contextmanager
    def measuring(
        self,
        record: ReplayRecord,
        replica: int,
    ) -> Iterator[None]:
        """Prepare to measure a case: open its NVTX range, and forget the conditions that the case before left.

        The range is in the domain ``perfsvc``, and has the case's id, its benchmark and the replica.
        """
        case = record.case
        attributes = self._domain.get_event_attributes(message=case.id, category=case.benchmark, payload=replica)
        self._domain.push_range(attributes)
        self._timer.discard_conditions()  # clocks and temperatures of the case before
        try:
            yield
        finally:
            self._domain.pop_range()

    @_translated
    def load(self, code: bytes) -> CudaModule:
        """Load a cubin or PTX."""
        module = CudaModule(code)
        self._modules.add(module)
        return module

    @_translated
    def allocate(self, nbytes: int) -> int:
        """Allocate device memory in the arena, or outside the arena if it is full."""
        return self._arena.allocate(nbytes) or self._allocated(nbytes)

    @_translated
    def allocate_untimed(self, nbytes: int) -> int:
        """Allocate device memory outside the arena."""
        return self._allocated(nbytes)

    def _allocated(self, nbytes: int) -> int:
        """Allocate device memory outside the arena, keep its handle, and return its address."""
        allocation = drv.mem_alloc(max(nbytes, 1))
        address = int(allocation)
        self._allocations[address] = allocation
        return address

    @_translated
    def free(self, address: int) -> None:
        """Free allocated memory; do nothing if the context is lost, because its memory is then free."""
        if self._lost or self._arena.free(address):
            return
        if address not in self._allocations:
            raise LaunchError(f"there is no allocation at {address:#x} to free", cure="free each allocation once")
        self._allocations.pop(address).free()

    @_translated
    def fill(self, address: int, nbytes: int, byte: int) -> None:
        """Queue a memset."""
        drv.memset_d8_async(address, byte, nbytes, self._stream)

    @_translated
    def upload(self, address: int, data: NDArray[Any]) -> None:
        """Queue a copy to the device; the host array may change once this returns."""
        self._uploader.upload(address, _bytes(data))

    @_translated
    def download(self, address: int, out: NDArray[Any]) -> None:
        """Copy from the device, after all queued work."""
        drv.memcpy_dtoh_async(_bytes(out), address, self._stream)
        self._stream.synchronize()

    def view(self, address: int, dtype: str, shape: tuple[int, ...]) -> DeviceView:
        """Return device memory with ``__cuda_array_interface__``."""
        return DeviceView(address, np.dtype(dtype), shape)

    @_translated
    def set_constant(self, module: CudaModule, symbol: str, address: int, nbytes: int) -> None:
        """Queue a copy into a ``__constant__`` symbol."""
        target, size = module.constant(symbol)
        if nbytes > size:
            raise LaunchError(
                f"the constant {symbol} holds {size} bytes and was given {nbytes}", cure="declare it large enough"
            )
        drv.memcpy_dtod_async(target, address, nbytes, self._stream)

    def tensor_map(self, address: int, arg: TensorMapArg) -> np.generic:
        """Return a ``CUtensorMap``, encoded by the driver."""
        return encode_tensor_map(address, arg)

    @_translated
    def launch(self, module: CudaModule, launch: Launch, args: Sequence[np.generic]) -> None:
        """Queue one launch."""
        self._last_entry = launch.entry
        kernel = module.kernel(launch, self.stream)
        kernel.queue(pack(launch.entry, kernel.layout, args))

    @_translated
    def synchronize(self) -> None:
        """Wait for the whole context, because Python variants may have streams of their own."""
        drv.Context.synchronize()

    @_translated
    def copy(self, target: int, source: int, nbytes: int) -> None:
        """Queue a copy within the device's memory."""
        drv.memcpy_dtod_async(target, source, nbytes, self._stream)

    @_translated
    def digest(self, address: int, nbytes: int) -> str:
        """Return a fingerprint of device memory, computed on the device."""
        return self._results.digest(address, nbytes)

    def can_compute_error(self, dtype: str, reference_dtype: str) -> bool:
        """Return whether there is a kernel for this pair of dtypes."""
        return bool(error_entry(dtype, reference_dtype))

    @_translated
    def error(self, address: int, dtype: str, reference: int, reference_dtype: str, count: int) -> Error | None:
        """Return the error of a result against its reference, computed on the device."""
        return self._results.error(address, dtype, reference, reference_dtype, count)

    def expect(self, expected: Mapping[str, NDArray[Any]]) -> None:
        """Do nothing: this device computes real results."""

    def now(self) -> float:
        """Return the monotonic clock."""
        return time.monotonic()

    def rest(self, seconds: float) -> None:
        """Sleep."""
        time.sleep(seconds)

    def conditions(self) -> Conditions:
        """Return the GPU's conditions."""
        return self._timer.conditions()

    @_translated
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
        """Time samples one by one."""
        if clock == "host":
            return self._timer.host_batch(sample, count, evict_bytes=evict_bytes, before=before, restore=restore)
        return self._timer.batch(
            sample, count, evict_bytes=evict_bytes, blocked=blocked, before=before, restore=restore, seconds=seconds
        )

    @_translated
    def capture(self, steps: Sequence[GraphStep], *, apart: bool = False, evict_bytes: int = 0) -> Graph:
        """Capture steps on the stream as a CUDA graph."""
        return graphs.capture(self._stream, steps, self._eviction, self._fail, apart=apart, evict_bytes=evict_bytes)

    @_translated
    def back_to_back(self, sample: Callable[[], None], count: int) -> float | None:
        """Return seconds per sample with nothing between samples."""
        return self._timer.back_to_back(sample, count)

    @_translated
    def uses_other_streams(
        self, sample: Callable[[], None], seconds: float, watched: Sequence[tuple[int, int]]
    ) -> bool:
        """Return whether a sample changes the watched memory although the device's own stream is blocked."""

        def fingerprints() -> list[str]:
            return [self._results_on_other_stream.digest(address, nbytes) for address, nbytes in watched]

        self._stream.synchronize()
        before = fingerprints()
        return self._timer.check_while_blocked(sample, seconds, lambda: fingerprints() != before)

    @_translated
    def energy(self, sample: Callable[[], None], seconds: float) -> float | None:
        """Return joules per sample by the GPU's own counter; None if the GPU has none."""
        return self._timer.energy(sample, self._telemetry.energy_j, seconds)

    def _fail(self, error: Exception) -> NoReturn:
        """Raise a ``LaunchError`` for a PyCUDA error; the ``LaunchError`` is fatal if the context is lost."""
        graphs.abandon(self._stream)  # a capture forbids to synchronise
        try:
            with self.activated():
                drv.Context.synchronize()
        except drv.Error:
            self._lost = True
        raise launch_error(str(error), self._last_entry, lost=self._lost) from error

    def close(self) -> None:
        """Free everything, even if the context is lost."""
        if not self._open:
            return
        self._open = False
        atexit.unregister(self.close)
        self._timer.close()
        if self._steps_aside:
            self._steps_aside = False
            self._context.push()
        for module in self._modules:
            (module.abandon if self._lost else module.unload)()
        if not self._lost:
            self._uploader.close()
            for address in list(self._allocations):
                self.free(address)
            if self._arena_memory:
                self._arena_memory.free()
        # Once the context is detached, PyCUDA drops its objects without driver calls, which would return errors.
        with contextlib.suppress(drv.Error):
            self._context.detach()
        self._allocations.clear()
        self._telemetry.close()


def _bytes(array: NDArray[Any]) -> NDArray[np.uint8]:
    """Return the memory of a C-contiguous array as bytes: PyCUDA cannot take arrays of bfloat16 and float8."""
    return array.reshape(-1).view(np.uint8)


def _allocate_arena(nbytes: int) -> tuple[Any, int]:
    """Allocate ``nbytes``, else half of it, and so on; return the memory and its size, or None and 0 if all fail."""
    while nbytes >= _LEAST_ARENA_BYTES:
        try:
            return drv.mem_alloc(nbytes), nbytes
        except drv.MemoryError:
            nbytes //= 2
    return None, 0
