"""The CPU device: runs what ``perfsvc.build.cpu.host`` made of .cu files, blocks in parallel over the cores.

Its purpose is correctness, trying perfsvc out, and CI without a GPU; its times say nothing about a GPU.
"""

import contextlib
import ctypes
import hashlib
import itertools
import math
import mmap
import os
import platform
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from perfsvc import elf
from perfsvc.device import arguments
from perfsvc.device.memory import HostMemory
from perfsvc.errors import LaunchError
from perfsvc.model import Batch, Conditions, DeviceInfo, Dim3, Error, Launch, ReplayRecord, TensorMapArg

WARP_SIZE = 32
MAX_THREADS_PER_BLOCK = 1024
MAX_SHARED_BYTES = 227 << 10
MAX_GRID: Dim3 = (2**31 - 1, 65535, 65535)
MAX_BLOCK: Dim3 = (1024, 1024, 64)

_ABI = 1
_BLOCK_BYTES = 256 << 10
_STACK_BYTES = 256 << 10
# A worker may come to have 1024 stacks, each with a guard page; Linux lets a process have 65530 mappings.
_MAX_WORKERS = 24
# Below this many threads the pool costs more than it gains.
_WORTH_SHARING = 4096
_CHUNKS_PER_WORKER = 16
_MAX_EVICTED_BYTES = 64 << 20


class _Entry(ctypes.Structure):
    """The twin of ``perfsvc::Entry`` in ``perfsvc/build/cpu/runtime/launch.h``."""

    _fields_ = (
        ("abi", ctypes.c_uint),
        ("arg_count", ctypes.c_uint),
        ("arg_bytes", ctypes.POINTER(ctypes.c_uint)),
        ("call", ctypes.c_void_p),
    )


class _Launch(ctypes.Structure):
    """The twin of ``perfsvc::Launch`` in ``perfsvc/build/cpu/runtime/block.h``."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("args", ctypes.c_void_p),
        ("blocks", ctypes.c_ulonglong),
        ("next_block", ctypes.c_ulonglong),
        ("chunk", ctypes.c_ulonglong),
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("failed", ctypes.c_int),
        ("message", ctypes.c_char * 1024),
    )


@dataclass(frozen=True, slots=True)
class CpuModule:
    """A loaded shared object and the sizes of the symbols it exports."""

    library: ctypes.CDLL
    symbols: Mapping[str, int]


def describe() -> DeviceInfo:
    """This machine's processor; the UUID is stable for the machine and the processor's model."""
    model = processor_model()
    identity = hashlib.sha256(f"{_machine_id()}/{model}".encode()).hexdigest()[:12]
    return DeviceInfo(
        kind="cpu",
        spec="cpu",
        uuid=f"CPU-{identity}",
        model=model,
        target=f"cpu-{platform.machine()}",
        multiprocessors=_usable_cores(),
        memory_bytes=_memory_bytes(),
        l2_bytes=_last_level_cache_bytes(),
        shared_bytes_per_block=MAX_SHARED_BYTES,
        warp_size=WARP_SIZE,
    )


def processor_model() -> str:
    """What this machine's processor calls itself."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _machine_id() -> str:
    with contextlib.suppress(OSError):
        if known := Path("/etc/machine-id").read_text(encoding="utf-8").strip():
            return known
    return platform.node()


def _usable_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _last_level_cache_bytes() -> int:
    """Of the first core, 0 where the system does not tell."""
    units = {"K": 1 << 10, "M": 1 << 20}
    caches = {0: 0}
    with contextlib.suppress(OSError, ValueError):
        for folder in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
            size = (folder / "size").read_text(encoding="utf-8").strip()
            level = int((folder / "level").read_text(encoding="utf-8"))
            caches[level] = max(caches.get(level, 0), int(size.rstrip("KM")) * units.get(size[-1], 1))
    return caches[max(caches)]


class CpuDevice:
    """This machine's processor as a ``Device``. Launches are done when ``launch`` returns."""

    def __init__(self) -> None:
        self.info = describe()
        self.stream = 0
        self._memory = HostMemory()
        self.allocate = self._memory.allocate
        self.allocate_aside = self._memory.allocate
        self.free = self._memory.free
        self.fill = self._memory.fill
        self.upload = self._memory.upload
        self.download = self._memory.download
        self.view = self._memory.view
        self.copy = self._memory.copy
        self.digest = self._memory.digest
        self.queue_depth = 0  # a launch is done when it returns
        self._workers = min(self.info.multiprocessors, _MAX_WORKERS)
        self._pool = ThreadPoolExecutor(self._workers, thread_name_prefix="perfsvc-cpu")
        self._arenas: list[mmap.mmap] = []
        self._saved_s = 0.0  # processor time that the launches of a sample spent beside each other
        self._evicted = np.zeros(_MAX_EVICTED_BYTES, np.uint8)

    def measuring(
        self,
        record: ReplayRecord,  # noqa: ARG002 no profiler looks at this device
        replica: int,  # noqa: ARG002 see above
    ) -> AbstractContextManager[None]:
        """Marks nothing."""
        return contextlib.nullcontext()

    def expect(self, expected: Mapping[str, NDArray[Any]]) -> None:
        """Nothing: this device computes its results."""

    def load(self, code: bytes) -> CpuModule:
        """Loads a shared object; raises ``LaunchError`` where it is not one for this machine."""
        # A name of its own for each: the loader takes two files of one name for the same library.
        with tempfile.NamedTemporaryFile(prefix="perfsvc-", suffix=".so") as file:
            file.write(code)
            file.flush()
            try:
                library = ctypes.CDLL(file.name)
                symbols = elf.exported_sizes(code)
            except (OSError, ValueError) as error:
                message = str(error).replace(f"{file.name}: ", "")
                raise LaunchError(
                    f"the binary cannot be loaded: {message}",
                    cure="build it on this machine; if its folder forbids execution, point TMPDIR to one that does not",
                ) from error
        return CpuModule(library, symbols)

    def set_constant(self, module: CpuModule, symbol: str, address: int, nbytes: int) -> None:
        """Copies memory into a ``__constant__`` symbol."""
        size = module.symbols.get(symbol)
        if size is None:
            raise LaunchError(
                f"the module has no __constant__ {symbol}",
                cure="declare it at file scope, outside namespaces, and neither static nor const",
            )
        if nbytes > size:
            raise LaunchError(f"__constant__ {symbol} has {size} bytes; {nbytes} do not fit")
        ctypes.memmove(ctypes.byref(ctypes.c_char.in_dll(module.library, symbol)), address, nbytes)

    def tensor_map(self, address: int, arg: TensorMapArg) -> np.generic:  # noqa: ARG002 it has none
        """There are none here: raises ``LaunchError``."""
        raise LaunchError(f"the CPU device has no tensor map of {arg.buffer!r}", cure='require "sm_90" of the variant')

    def launch(self, module: CpuModule, launch: Launch, args: Sequence[np.generic]) -> None:
        """Runs one launch to its end; raises ``LaunchError`` where it is refused or a block cannot go on."""
        _check_configuration(launch)
        entry = _find_entry(module, launch.entry)
        arguments.check(launch.entry, entry.arg_bytes[: entry.arg_count], args)
        values = [np.array(arg) for arg in args]
        pointers = (ctypes.c_void_p * (len(values) + 1))(*(value.ctypes.data for value in values))
        blocks = math.prod(launch.grid)
        workers = self._workers_for(blocks, math.prod(launch.block))
        state = _Launch(
            name=launch.entry.encode(),
            args=ctypes.addressof(pointers),
            blocks=blocks,
            chunk=max(1, blocks // (workers * _CHUNKS_PER_WORKER)),
            grid=launch.grid,
            block=launch.block,
        )
        self._run(module, entry, state, workers)
        if state.failed:
            raise LaunchError(state.message.decode(errors="replace"), cure="correct the kernel")

    def _workers_for(self, blocks: int, threads: int) -> int:
        return 1 if blocks * threads < _WORTH_SHARING else min(self._workers, blocks)

    def _run(self, module: CpuModule, entry: _Entry, state: _Launch, workers: int) -> None:
        while len(self._arenas) < workers:
            self._arenas.append(_new_arena())
        run = module.library.perfsvc_run
        run.restype = None
        run.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
        calls = [
            (ctypes.addressof(entry), ctypes.addressof(state), _address(arena))
            for arena in itertools.islice(self._arenas, workers)
        ]
        start = time.process_time()
        others = [self._pool.submit(run, *call) for call in calls[1:]]
        try:
            run(*calls[0])
        finally:  # an interrupt must not take the launch from under the others
            for other in others:
                other.result()
        self._saved_s += (time.process_time() - start) * (1 - 1 / workers)

    def synchronize(self) -> None:
        """Everything is done already."""

    def finds_errors(self, dtype: str, reference_dtype: str) -> bool:  # noqa: ARG002 the host is this device
        """Never: the host does it as well."""
        return False

    def error(self, address: int, dtype: str, reference: int, reference_dtype: str, count: int) -> Error | None:  # noqa: ARG002 see above
        """Never asked for."""
        return None

    def works_elsewhere(self, sample: Callable[[], None], seconds: float, watched: Sequence[tuple[int, int]]) -> bool:  # noqa: ARG002 there are no streams
        """Never: what ``sample`` does is done when it returns."""
        return False

    def now(self) -> float:
        """The monotonic clock."""
        return time.monotonic()

    def rest(self, seconds: float) -> None:
        """Sleeps."""
        time.sleep(seconds)

    def conditions(self) -> Conditions:
        """Nothing is known of them."""
        return Conditions()

    def batch(
        self,
        sample: Callable[[], None],
        count: int,
        *,
        clock: Literal["device", "host"],
        evict_bytes: int,
        blocked: bool,  # noqa: ARG002 nothing can come between a launch and itself
    ) -> Batch:
        """Samples in seconds of processor time, that of a launch shared evenly among its workers; elapsed for ``host``.

        Processor time, because other programs on this machine would else be taken for the kernel. Eviction writes
        64 MiB at most; what other cores hold in caches of their own stays there.
        """
        samples_s = []
        now = time.perf_counter if clock == "host" else time.process_time
        started = time.perf_counter()
        for _ in range(count):
            self._evicted[:evict_bytes] += 1
            self._saved_s = 0.0
            start = now()
            sample()
            samples_s.append(now() - start - (0.0 if clock == "host" else self._saved_s))
        return Batch(tuple(samples_s), busy_s=time.perf_counter() - started)

    def back_to_back(self, sample: Callable[[], None], count: int) -> float:
        """Seconds of processor time a sample, without anything between them."""
        self._saved_s = 0.0
        start = time.process_time()
        for _ in range(count):
            sample()
        return (time.process_time() - start - self._saved_s) / count

    def energy(self, sample: Callable[[], None], seconds: float) -> float | None:  # noqa: ARG002 nobody counts it
        """Not known."""
        return None

    def close(self) -> None:
        """Ends the worker threads and gives their stacks back."""
        self._pool.shutdown()
        for arena in self._arenas:
            arena.close()
        self._arenas.clear()


def _new_arena() -> mmap.mmap:
    """Memory for a worker: the block it runs, and a stack for each thread. The system backs only what is touched."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
    arena = mmap.mmap(-1, _BLOCK_BYTES + MAX_THREADS_PER_BLOCK * _STACK_BYTES, flags=flags)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel without huge pages
            arena.madvise(mmap.MADV_NOHUGEPAGE)
    return arena


def _address(arena: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(arena))


def _check_configuration(launch: Launch) -> None:
    """Refuses what a GPU refuses."""
    threads = math.prod(launch.block)
    wrong = (
        threads > MAX_THREADS_PER_BLOCK
        or any(not 1 <= size <= most for size, most in zip(launch.block, MAX_BLOCK, strict=True))
        or any(not 1 <= size <= most for size, most in zip(launch.grid, MAX_GRID, strict=True))
    )
    if wrong:
        raise LaunchError(
            f"invalid configuration: kernel {launch.entry} with grid {launch.grid} and block {launch.block}",
            cure=f"use 1 to {MAX_THREADS_PER_BLOCK} threads a block, at most {MAX_BLOCK}, and a grid up to {MAX_GRID}",
        )
    if not 0 <= launch.shared_bytes <= MAX_SHARED_BYTES:
        raise LaunchError(
            f"invalid configuration: kernel {launch.entry} with {launch.shared_bytes} bytes of dynamic shared memory",
            cure=f"use at most {MAX_SHARED_BYTES} bytes",
        )


def _find_entry(module: CpuModule, name: str) -> _Entry:
    symbol = f"perfsvc_entry_{name}"
    if symbol not in module.symbols:
        raise LaunchError(
            f"the module has no entry {name}", cure='declare it extern "C" __global__, and build it again'
        )
    entry: _Entry = ctypes.POINTER(_Entry).in_dll(module.library, symbol).contents
    if entry.abi != _ABI:
        raise LaunchError(
            f"the binary of {name} was built for the CPU device's format {entry.abi}; this perfsvc runs format {_ABI}",
            cure="build it again with this perfsvc",
        )
    return entry
