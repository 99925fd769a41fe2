"""The CPU device: runs .cu files that ``perfsvc.build.cpu`` compiled, with their blocks in parallel on all cores.

It is for checking results, for trying perfsvc out, and for CI without a GPU; its times do not predict those of a GPU.
"""

import contextlib
import ctypes
import hashlib
import itertools
import math
import mmap
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from perfsvc import elf, entries
from perfsvc.device.arguments import check_arguments
from perfsvc.device.host_graph import HostGraph
from perfsvc.device.memory import HostDevice
from perfsvc.device.protocol import Graph, GraphStep
from perfsvc.errors import LaunchError
from perfsvc.model import Batch, Conditions, DeviceInfo, Dim3, Launch, ReplayRecord
from perfsvc.temporary import temporary_folder

WARP_SIZE = 32
MAX_THREADS_PER_BLOCK = 1024
MAX_SHARED_BYTES = 227 << 10
MAX_GRID: Dim3 = (2**31 - 1, 65535, 65535)
MAX_BLOCK: Dim3 = (1024, 1024, 64)

_ABI = 1
_BLOCK_BYTES = 256 << 10
_STACK_BYTES = 256 << 10
# A worker may have up to 1024 stacks, each with a guard page, and Linux allows a process 65530 mappings.
_MAX_WORKERS = 24
# With fewer CUDA threads the thread pool costs more than it gains.
_MIN_SHARED_THREADS = 4096
_CHUNKS_PER_WORKER = 16
_MAX_EVICTED_BYTES = 64 << 20


class _NativeEntry(ctypes.Structure):
    """The same layout as ``perfsvc::Entry`` in ``perfsvc/build/cpu/runtime/launch.h``."""

    _fields_ = (
        ("abi", ctypes.c_uint),
        ("arg_count", ctypes.c_uint),
        ("arg_bytes", ctypes.POINTER(ctypes.c_uint)),
        ("call", ctypes.c_void_p),
    )


class _NativeLaunch(ctypes.Structure):
    """The same layout as ``perfsvc::Launch`` in ``perfsvc/build/cpu/runtime/block.h``."""

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
    """Return this machine's processor; its UUID depends on the machine and the processor's model."""
    model = processor_model()
    identity = hashlib.sha256(f"{_machine_id()}/{model}".encode()).hexdigest()[:12]
    return DeviceInfo(
        kind="cpu",
        spec="cpu",
        uuid=f"CPU-{identity}",
        model=model,
        target=f"cpu-{platform.machine()}",
        multiprocessors=_usable_cores(),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        l2_bytes=_last_level_cache_bytes(),
        shared_bytes_per_block=MAX_SHARED_BYTES,
        warp_size=WARP_SIZE,
    )


def processor_model() -> str:
    """Return the name of this machine's processor."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _machine_id() -> str:
    """Return the machine id of systemd, or the host's name if there is none."""
    with contextlib.suppress(OSError):
        if machine_id := Path("/etc/machine-id").read_text(encoding="utf-8").strip():
            return machine_id
    return platform.node()


def _usable_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _last_level_cache_bytes() -> int:
    """Return the size of the first core's last-level cache; 0 if unknown."""
    units = {"K": 1 << 10, "M": 1 << 20}
    caches = {0: 0}
    with contextlib.suppress(OSError, ValueError):
        for folder in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
            size = (folder / "size").read_text(encoding="utf-8").strip()
            level = int((folder / "level").read_text(encoding="utf-8"))
            caches[level] = max(caches.get(level, 0), int(size.rstrip("KM")) * units.get(size[-1], 1))
    return caches[max(caches)]


class CpuDevice(HostDevice):
    """This machine's processor as a ``Device``; ``launch`` returns when the launch is done.

    It also stands in for a group of GPUs.

    Args:
        info: its description if it stands in for a group.
    """

    def __init__(self, info: DeviceInfo | None = None) -> None:
        super().__init__()
        self.info = info or describe()
        self._workers = min(self.info.multiprocessors, _MAX_WORKERS)
        self._pool = ThreadPoolExecutor(self._workers, thread_name_prefix="perfsvc-cpu")
        self._arenas: list[mmap.mmap] = []
        self._parallel_s = 0.0  # processor time that parallel workers added to the launches of a sample
        self._evicted = np.zeros(_MAX_EVICTED_BYTES, np.uint8)

    def measuring(self, record: ReplayRecord, replica: int) -> AbstractContextManager[None]:
        """Return a context that does nothing: this device needs no preparation for a case."""
        return contextlib.nullcontext()

    def expect(self, expected: Mapping[str, NDArray[Any]]) -> None:
        """Do nothing: this device computes real results."""

    def load(self, code: bytes) -> CpuModule:
        """Load a shared object; raises ``LaunchError`` if this machine cannot load it."""
        # Each file gets its own name, because the loader takes two files with one name for the same library.
        with temporary_folder() as folder:
            file = folder / f"{folder.name}.so"
            file.write_bytes(code)
            try:
                library = ctypes.CDLL(str(file))
                symbols = elf.exported_sizes(code)
            except (OSError, ValueError) as error:
                message = str(error).replace(f"{file}: ", "")
                raise LaunchError(
                    f"the binary cannot be loaded: {message}",
                    cure="build it on this machine; if the temporary folder forbids execution, set TMPDIR to another",
                ) from error
        return CpuModule(library, symbols)

    def set_constant(self, module: CpuModule, symbol: str, address: int, nbytes: int) -> None:
        """Copy memory into a ``__constant__`` symbol."""
        size = module.symbols.get(symbol)
        if size is None:
            raise LaunchError(
                f"the module has no __constant__ {symbol}",
                cure="declare it at file scope, outside namespaces, and neither static nor const",
            )
        if nbytes > size:
            raise LaunchError(f"__constant__ {symbol} has {size} bytes; {nbytes} do not fit")
        ctypes.memmove(ctypes.byref(ctypes.c_char.in_dll(module.library, symbol)), address, nbytes)

    def launch(self, module: CpuModule, launch: Launch, args: Sequence[np.generic]) -> None:
        """Run one launch to its end; raises ``LaunchError`` if it is refused or a block fails."""
        _check_configuration(launch)
        entry = _find_entry(module, launch.entry)
        check_arguments(launch.entry, entry.arg_bytes[: entry.arg_count], args)
        values = [np.array(arg) for arg in args]
        pointers = (ctypes.c_void_p * (len(values) + 1))(*(value.ctypes.data for value in values))
        blocks = math.prod(launch.grid)
        shared = blocks * math.prod(launch.block) >= _MIN_SHARED_THREADS
        workers = min(self._workers, blocks) if shared else 1
        state = _NativeLaunch(
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

    def _run(self, module: CpuModule, entry: _NativeEntry, state: _NativeLaunch, workers: int) -> None:
        """Run the blocks of a launch on several workers; this thread is one of them."""
        while len(self._arenas) < workers:
            self._arenas.append(_new_arena())
        run = module.library.perfsvc_run
        run.restype = None
        run.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
        calls = [
            (ctypes.addressof(entry), ctypes.addressof(state), ctypes.addressof(ctypes.c_char.from_buffer(arena)))
            for arena in itertools.islice(self._arenas, workers)
        ]
        start = time.process_time()
        others = [self._pool.submit(run, *call) for call in calls[1:]]
        try:
            run(*calls[0])
        finally:  # after an interrupt, too: the other workers still use the launch
            for other in others:
                other.result()
        self._parallel_s += (time.process_time() - start) * (1 - 1 / workers)

    def now(self) -> float:
        """Return the monotonic clock."""
        return time.monotonic()

    def rest(self, seconds: float) -> None:
        """Sleep."""
        time.sleep(seconds)

    def conditions(self) -> Conditions:
        """Return empty conditions: this device reports none."""
        return Conditions()

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
        """Time samples: in elapsed time with the clock ``"host"``, else in processor time.

        The processor time of a launch is divided by the number of its workers. Other programs on this machine do not
        change it. Eviction writes at most 64 MiB; data in the private caches of other cores stays there.
        """
        samples_s = []
        started = time.perf_counter()
        for number in range(count):
            if before:
                before(number)
            if restore:
                restore()
            self._evict(evict_bytes)
            if seconds:
                sample()
                samples_s.append(seconds())
            elif clock == "host":
                start = time.perf_counter()
                sample()
                samples_s.append(time.perf_counter() - start)
            else:
                samples_s.append(self._processor_s(sample))
        return Batch(tuple(samples_s), busy_s=time.perf_counter() - started)

    def _evict(self, nbytes: int) -> None:
        self._evicted[:nbytes] += 1

    def _processor_s(self, run: Callable[[], object]) -> float:
        """Run a function, and return its processor time divided by the number of the workers of each launch."""
        self._parallel_s = 0.0
        start = time.process_time()
        run()
        return time.process_time() - start - self._parallel_s

    def capture(self, steps: Sequence[GraphStep], *, apart: bool = False, evict_bytes: int = 0) -> Graph:
        """Return a graph that runs the steps one after the other."""
        return HostGraph(steps, self._processor_s if apart else None, partial(self._evict, evict_bytes))

    def back_to_back(self, sample: Callable[[], None], count: int) -> float:
        """Return seconds of processor time per sample, with nothing between samples."""
        self._parallel_s = 0.0
        start = time.process_time()
        for _ in range(count):
            sample()
        return (time.process_time() - start - self._parallel_s) / count

    def energy(self, sample: Callable[[], None], seconds: float) -> float | None:
        """Return None: this device does not count energy."""
        return None

    def close(self) -> None:
        """End the worker threads and free their stacks."""
        self._pool.shutdown()
        for arena in self._arenas:
            arena.close()
        self._arenas.clear()


def _new_arena() -> mmap.mmap:
    """Return memory for a worker's block and for a stack of each CUDA thread. Untouched pages cost nothing."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
    arena = mmap.mmap(-1, _BLOCK_BYTES + MAX_THREADS_PER_BLOCK * _STACK_BYTES, flags=flags)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel without huge pages
            arena.madvise(mmap.MADV_NOHUGEPAGE)
    return arena


def _check_configuration(launch: Launch) -> None:
    """Raise ``LaunchError`` for a launch that a GPU refuses."""
    threads = math.prod(launch.block)
    too_large = (
        threads > MAX_THREADS_PER_BLOCK
        or any(not 1 <= size <= most for size, most in zip(launch.block, MAX_BLOCK, strict=True))
        or any(not 1 <= size <= most for size, most in zip(launch.grid, MAX_GRID, strict=True))
    )
    if too_large:
        raise LaunchError(
            f"invalid configuration: kernel {launch.entry} with grid {launch.grid} and block {launch.block}",
            cure=f"use 1 to {MAX_THREADS_PER_BLOCK} threads, a block up to {MAX_BLOCK} and a grid up to {MAX_GRID}",
        )
    if not 0 <= launch.shared_bytes <= MAX_SHARED_BYTES:
        raise LaunchError(
            f"invalid configuration: kernel {launch.entry} with {launch.shared_bytes} bytes of dynamic shared memory",
            cure=f"use at most {MAX_SHARED_BYTES} bytes",
        )


def _find_entry(module: CpuModule, name: str) -> _NativeEntry:
    """Return a kernel's entry; raises ``LaunchError`` if the module has none, or one of another format."""
    symbol = f"perfsvc_entry_{entries.key(name)}"
    if symbol not in module.symbols:
        raise LaunchError(f"the module has no kernel {name}", cure="correct the name, and build it again")
    entry: _NativeEntry = ctypes.POINTER(_NativeEntry).in_dll(module.library, symbol).contents
    if entry.abi != _ABI:
        raise LaunchError(
            f"the binary of {name} was built for the CPU device's format {entry.abi}; this perfsvc runs format {_ABI}",
            cure="build it again with this perfsvc",
        )
    return entry
