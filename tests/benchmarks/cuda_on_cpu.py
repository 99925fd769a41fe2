"""Measure the costs of the CPU device: compiling a unit, running a thread, switching between the threads of a block.

    python tests/benchmarks/cuda_on_cpu.py

Everything is measured in one run on one core, so that the ratios hold even if another machine has other times.
"""

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from perfsvc.build.cpu.host import Compiler, HostToolchain, find_compiler, find_zig
from perfsvc.device.cpu import CpuDevice
from perfsvc.model import Launch, Unit

SOURCE = """
extern "C" __global__ void plain(float* x, int rounds) {
  for (int i = 0; i < rounds; ++i) x[threadIdx.x] += 1;
}
extern "C" __global__ void barriers(float* x, int rounds) {
  for (int i = 0; i < rounds; ++i) __syncthreads();
}
extern "C" __global__ void shuffles(float* x, int rounds) {
  float value = threadIdx.x;
  for (int i = 0; i < rounds; ++i) value += __shfl_xor_sync(0xffffffff, value, 1);
  x[threadIdx.x] = value;
}
"""
ENTRIES = ("plain", "barriers", "shuffles")
ROUNDS = 1000
PLAIN_BLOCKS = 4000


def compilers() -> Iterator[Compiler]:
    """Yield the compiler that perfsvc would choose, and zig if that is a different one."""
    found, zig = find_compiler(), find_zig()
    yield found
    if zig and zig != found:
        yield zig


def best(action: Callable[[], object], times: int = 9) -> float:
    """Return the least processor time of an action in seconds, so that other load on the machine does not count."""
    seconds = []
    for _ in range(times):
        start = time.process_time()
        action()
        seconds.append(time.process_time() - start)
    return min(seconds)


def compile_twice(compiler: Compiler, folder: Path) -> tuple[bytes, float, float]:
    """Return the code and the seconds of the first and of a later compilation, starting with zig's cache empty."""
    os.environ["ZIG_GLOBAL_CACHE_DIR"] = str(folder / "zig")
    seconds = []
    for text in (SOURCE, f"{SOURCE}\n"):
        source = folder / "kernels.cu"
        source.write_text(text)
        start = time.perf_counter()
        code = HostToolchain(compiler).compile(Unit(source, ENTRIES))
        seconds.append(time.perf_counter() - start)
    return code, seconds[0], seconds[1]


def measure(device: CpuDevice, code: bytes) -> None:
    """Print the nanoseconds of a thread and of a switch, and their ratio."""
    module = device.load(code)
    address = np.uint64(device.allocate(4096))
    device.fill(int(address), 4096, 0)

    def seconds(entry: str, blocks: int, threads: int, rounds: int) -> float:
        launch = Launch(0, entry, (blocks, 1, 1), (threads, 1, 1), ())
        return best(lambda: device.launch(module, launch, [address, np.int32(rounds)]))

    plain = seconds("plain", PLAIN_BLOCKS, 256, 1) / PLAIN_BLOCKS / 256
    print(f"  a thread that never waits          {plain * 1e9:6.1f} ns")
    for entry in ("barriers", "shuffles"):
        for threads in (32, 256, 1024):
            switch = (seconds(entry, 1, threads, ROUNDS) - seconds(entry, 1, threads, 0)) / threads / ROUNDS
            print(f"  {entry[:-1]:8} in a block of {threads:4} threads {switch * 1e9:6.1f} ns  {switch / plain:5.2f} ×")


def main() -> None:
    """Measure each compiler's code on one core."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    device = CpuDevice()
    for compiler in compilers():
        with tempfile.TemporaryDirectory() as folder:
            code, first, later = compile_twice(compiler, Path(folder))
        print(compiler.version)
        print(f"  compiling first {first:.2f} s, later {later:.2f} s ({first / later:.1f} ×), {len(code)} bytes")
        measure(device, code)
    device.close()


if __name__ == "__main__":
    main()
