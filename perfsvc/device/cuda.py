"""NVIDIA GPUs through PyCUDA. The only file that imports it."""

import atexit
import contextlib
import ctypes
import functools
import os
import struct
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Concatenate, Literal, NoReturn, ParamSpec, TypeVar

import numpy as np
import nvtx
import pycuda.driver as drv
from numpy.typing import NDArray

from perfsvc.device import telemetry
from perfsvc.errors import LaunchError, NoDeviceError
from perfsvc.model import DeviceInfo, Launch, ReplayRecord

P = ParamSpec("P")
R = TypeVar("R")

_HZ_PER_KHZ = 1e3
_SECONDS_PER_MS = 1e-3
_PLAIN_SHARED_BYTES = 48 << 10  # beyond it a kernel has to opt in (CUDA C++ Programming Guide, shared memory)
_SAMPLES_PER_FLUSH = 2  # the host queues about two samples in the time in which the device writes the flush buffer
_QUEUED_FLUSHES = 256  # the driver's queue takes about a thousand operations before it makes the host wait

_CURES = {
    "illegal memory access": "run the case under compute-sanitizer: a thread reads or writes outside its buffers",
    "misaligned address": "align what vector loads and stores (float4) are given",
    "illegal instruction": "build the case anew for this GPU",
    "invalid argument": "compare grid, block and dynamic shared memory with what `perfsvc devices` shows",
    "too many resources": "use fewer threads a block, or bound its registers with __launch_bounds__",
    "out of memory": "choose a smaller point, or free the GPU of other processes (nvidia-smi)",
    "timed out": "make the launch shorter, or run on a GPU without a display",
    "assert": "the kernel's own assert failed: its message is in the worker's output",
    "symbol not found": 'correct the name, and declare kernels extern "C" so that the compiler keeps theirs',
    "PTX": "build the case anew for this GPU",
    "image is invalid": "build the case anew for this GPU",
    "no kernel image": "build the case for this GPU's architecture",
    "ECC": "take the board out of service and look at nvidia-smi -q -d ECC",
}
_CALLS_OF_A_KERNEL = ("cuLaunchKernel", "cuModuleGetFunction", "cuFunc")
_OTHER_CURE = "run the case under compute-sanitizer, and see dmesg for the driver's own report (Xid)"


def devices() -> list[DeviceInfo]:
    """Every CUDA device that this process may see, in CUDA's order. Creates no context.

    Raises ``NoDeviceError`` where the driver finds none.
    """
    # Before cuInit, which reads it: a lazily loaded kernel would make its first launch wait for the loading.
    os.environ.setdefault("CUDA_MODULE_LOADING", "EAGER")
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")  # so that cuda:1 is nvidia-smi's GPU 1
    try:
        drv.init()
        return [_describe(ordinal) for ordinal in range(drv.Device.count())]
    except drv.Error as error:
        raise NoDeviceError(
            f"the CUDA driver finds no device: {error}",
            cure="see whether nvidia-smi lists one; check CUDA_VISIBLE_DEVICES",
        ) from error


def _describe(ordinal: int) -> DeviceInfo:
    device = drv.Device(ordinal)
    major, minor = device.compute_capability()
    identity = _uuid(ordinal)

    def attribute(name: str) -> int:
        return int(device.get_attribute(getattr(drv.device_attribute, name)))

    return DeviceInfo(
        kind="cuda",
        spec=f"cuda:{identity}",
        uuid=identity,
        model=str(device.name()),
        target=f"sm_{major}{minor}",
        compute_capability=f"{major}.{minor}",
        multiprocessors=attribute("MULTIPROCESSOR_COUNT"),
        clock_hz=attribute("CLOCK_RATE") * _HZ_PER_KHZ,
        memory_clock_hz=attribute("MEMORY_CLOCK_RATE") * _HZ_PER_KHZ,
        memory_bytes=int(device.total_memory()),
        l2_bytes=attribute("L2_CACHE_SIZE"),
        shared_bytes_per_block=attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
        registers_per_block=attribute("MAX_REGISTERS_PER_BLOCK"),
        warp_size=attribute("WARP_SIZE"),
        driver=telemetry.driver_version() or _cuda_version(drv.get_driver_version()),
        power_limit_w=telemetry.power_limit_w(identity),
    )


def _cuda_version(number: int) -> str:
    return f"CUDA {number // 1000}.{number % 1000 // 10}"


def _uuid(ordinal: int) -> str:
    """The UUID as nvidia-smi prints it; PyCUDA has no call for it."""
    library = ctypes.CDLL("libcuda.so.1")  # the one that PyCUDA has loaded
    handle, raw = ctypes.c_int(), ctypes.create_string_buffer(16)
    for result in (
        library.cuDeviceGet(ctypes.byref(handle), ordinal),
        library.cuDeviceGetUuid_v2(raw, handle),
    ):
        if result:
            raise NoDeviceError(f"the CUDA driver does not say which board device {ordinal} is (error {result})")
    return f"GPU-{uuid.UUID(bytes=raw.raw)}"


@dataclass(frozen=True, slots=True)
class DeviceView:
    """Device memory as libraries take it (CuPy, PyTorch, Numba): ``__cuda_array_interface__``, version 3."""

    address: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    stream: int

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "version": 3,
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.address, False),
            "strides": None,
            "stream": self.stream,
        }


@dataclass(frozen=True, slots=True)
class _Module:
    """A loaded cubin and its kernels, prepared for the launches that were asked for."""

    loaded: Any
    kernels: dict[tuple[str, int], Any] = field(default_factory=dict)


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
        uuid: which one, as ``GPU-5e…``.

    Raises:
        NoDeviceError: there is no such GPU, or it cannot be opened.
    """

    def __init__(self, uuid: str) -> None:
        known = devices()
        ordinal = next((index for index, info in enumerate(known) if info.uuid == uuid), None)
        if ordinal is None:
            raise NoDeviceError(f"there is no GPU {uuid}", cure="name one that `perfsvc devices` lists")
        self.info = known[ordinal]
        try:
            self._context = drv.Device(ordinal).retain_primary_context()
            self._context.push()
            self._stream = drv.Stream()
        except drv.Error as error:
            raise NoDeviceError(
                f"{self.info.model} ({uuid}) cannot be opened: {error}",
                cure="see in nvidia-smi whether another process holds it, or its compute mode forbids it",
            ) from error
        # PyCUDA aborts a process that ends with a context on its stack.
        atexit.register(self.close)
        self._open = True
        self._lost = False
        self._allocations: dict[int, Any] = {}
        self._events: list[tuple[Any, Any]] = []
        self._flush_address = 0
        self._last_entry = ""
        self._domain = nvtx.get_domain("perfsvc")

    @property
    def stream(self) -> int:
        """The stream that everything is queued on."""
        return int(self._stream.handle)

    @contextlib.contextmanager
    def measuring(
        self,
        record: ReplayRecord,
        replica: int,
        expected: Mapping[str, NDArray[Any]],  # noqa: ARG002 only a device that computes nothing needs them
    ) -> Iterator[None]:
        """An NVTX range in the domain ``perfsvc`` that bears the case's id, its benchmark and the replica."""
        case = record.case
        attributes = self._domain.get_event_attributes(message=case.id, category=case.benchmark, payload=replica)
        self._domain.push_range(attributes)
        try:
            yield
        finally:
            self._domain.pop_range()

    @_translated
    def load(self, code: bytes) -> _Module:
        """Loads a cubin."""
        return _Module(drv.module_from_buffer(code))

    @_translated
    def allocate(self, nbytes: int) -> int:
        """Allocates device memory, at least one byte."""
        allocation = drv.mem_alloc(max(nbytes, 1))
        address = int(allocation)
        self._allocations[address] = allocation
        return address

    def free(self, address: int) -> None:
        """Frees what ``allocate`` returned; all of it goes with the context where that is lost."""
        if self._lost:
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
        drv.memcpy_htod_async(address, data, self._stream)

    @_translated
    def download(self, address: int, out: NDArray[Any]) -> None:
        """Copies from the device, after all that was queued."""
        drv.memcpy_dtoh_async(out, address, self._stream)
        self._stream.synchronize()

    def view(self, address: int, dtype: str, shape: tuple[int, ...]) -> DeviceView:
        """Device memory for libraries that know ``__cuda_array_interface__``."""
        return DeviceView(address, np.dtype(dtype), shape, self.stream)

    @_translated
    def set_constant(self, module: _Module, symbol: str, address: int, nbytes: int) -> None:
        """Queues a copy into a ``__constant__`` symbol."""
        target, size = module.loaded.get_global(symbol)
        if nbytes > size:
            raise LaunchError(
                f"the constant {symbol} holds {size} bytes and was given {nbytes}", cure="declare it large enough"
            )
        drv.memcpy_dtod_async(target, address, nbytes, self._stream)

    @_translated
    def launch(self, module: _Module, launch: Launch, args: Sequence[np.generic]) -> None:
        """Queues one launch."""
        self._last_entry = launch.entry
        # NumPy's type characters are struct's, and struct's native alignment is that of kernel arguments.
        packed = struct.pack("@" + "".join([arg.dtype.char for arg in args]), *args)
        key = (launch.entry, launch.shared_bytes)
        kernel = module.kernels.get(key)
        if kernel is None:
            kernel = module.kernels[key] = _prepare(module.loaded, *key)
        # PyCUDA's public calls enter the driver a second time for each launch, through a function it has deprecated.
        kernel._launch_kernel(launch.grid, launch.block, packed, launch.shared_bytes, self._stream)  # noqa: SLF001 (as said)

    @_translated
    def synchronize(self) -> None:
        """Waits for the whole context: Python variants may have streams of their own."""
        drv.Context.synchronize()

    @_translated
    def time(
        self, sample: Callable[[], None], count: int, *, clock: Literal["device", "host"], cold: bool
    ) -> list[float]:
        """Times samples one by one, in seconds."""
        measure = self._device_times if clock == "device" else self._host_times
        return measure(sample, count, cold=cold)

    def _device_times(self, sample: Callable[[], None], count: int, *, cold: bool) -> list[float]:
        while len(self._events) < count:
            self._events.append((drv.Event(), drv.Event()))
        pairs = self._events[:count]
        if not cold:
            self._head_start(sample, count)
        for start, end in pairs:
            if cold:
                self._flush()
            start.record(self._stream)
            sample()
            end.record(self._stream)
        self._stream.synchronize()
        return [float(end.time_since(start)) * _SECONDS_PER_MS for start, end in pairs]

    def _head_start(self, sample: Callable[[], None], count: int) -> None:
        """Keeps the device busy while the host queues the samples: an idle device would time the host instead.

        The untimed sample after it brings the sample's data back into the cache.
        """
        for _ in range(min(1 + count // _SAMPLES_PER_FLUSH, _QUEUED_FLUSHES)):
            self._flush()
        sample()

    def _host_times(self, sample: Callable[[], None], count: int, *, cold: bool) -> list[float]:
        seconds: list[float] = []
        for _ in range(count):
            if cold:
                self._flush()
            drv.Context.synchronize()
            start = time.perf_counter()
            sample()
            drv.Context.synchronize()
            seconds.append(time.perf_counter() - start)
        return seconds

    def _flush(self) -> None:
        """Queues a write to twice as many bytes as the L2 cache holds, which evicts all else."""
        nbytes = 2 * self.info.l2_bytes
        self._flush_address = self._flush_address or self.allocate(nbytes)
        drv.memset_d8_async(self._flush_address, 0, nbytes, self._stream)

    def _fail(self, error: Exception) -> NoReturn:
        """Raises ``error`` as ours. It is fatal if the context answers no more: CUDA repeats such an error for ever."""
        try:
            drv.Context.synchronize()
        except drv.Error:
            self._lost = True
        text = str(error)
        cure = next((cure for sign, cure in _CURES.items() if sign in text), _OTHER_CURE)
        of_kernel = self._lost or text.startswith(_CALLS_OF_A_KERNEL)
        where = f" (last launch: {self._last_entry})" if self._last_entry and of_kernel else ""
        raise LaunchError(f"{text}{where}", cure=cure, fatal=self._lost) from error

    def close(self) -> None:
        """Gives everything back, also when the context is lost."""
        if not self._open:
            return
        self._open = False
        atexit.unregister(self.close)
        if not self._lost:
            for address in list(self._allocations):
                self.free(address)
        # Without its context PyCUDA drops what is left without asking the driver, which would answer with errors.
        with contextlib.suppress(drv.Error):
            self._context.detach()
        self._allocations.clear()
        self._events.clear()


def _prepare(module: Any, entry: str, shared_bytes: int) -> Any:
    kernel = module.get_function(entry)
    if shared_bytes > _PLAIN_SHARED_BYTES:
        opt_in = drv.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES
        # Never lowered: another launch of this kernel may need more.
        kernel.set_attribute(opt_in, max(shared_bytes, kernel.get_attribute(opt_in)))
    return kernel
