"""Time the cases of a bundle with NVBench at its defaults: one process, every case once.

    python tests/benchmarks/nvbench/cases.py BUNDLE RESULT.json

``BUNDLE`` is a folder that ``tests/benchmarks/side_by_side.py`` writes: ``cases.json`` with the steps of each case, the
binaries that perfsvc times, and the beginning of each input. NVBench itself writes RESULT.json. The last line
printed is the time at which the last measurement ended, on the clock that all processes of a machine share.

Needs cuda-bench and cuda-bindings; nothing of perfsvc is imported.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cuda.bench as nvbench
import numpy as np
from cuda.bindings import driver

Queue = Callable[[Any], None]
"""A function that queues a step on a stream."""


def done(result: tuple[Any, ...]) -> Any:
    """Return the result of a call of the driver; raises ``RuntimeError`` if it failed."""
    status, *values = result
    if status != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(f"the CUDA driver returned {status!r}")
    return values[0] if len(values) == 1 else tuple(values)


def main() -> None:
    """Register every case and let NVBench run them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path, help="the folder with cases.json")
    parser.add_argument("result", type=Path, help="where NVBench writes its JSON")
    options = parser.parse_args()
    bundle = json.loads((options.bundle / "cases.json").read_text())
    enter_primary_context()
    arena = done(driver.cuMemAlloc(bundle["arena_bytes"]))  # the first allocation, as perfsvc makes it
    for case in bundle["cases"]:
        nvbench.register(benchmark(options.bundle, case, int(arena))).set_name(case["name"])
    nvbench.run_all_benchmarks([Path(__file__).name, "--json", str(options.result)])
    print("ended", time.monotonic())


def enter_primary_context() -> None:
    """Make the context current that NVBench also uses, through the CUDA runtime."""
    done(driver.cuInit(0))
    context = done(driver.cuDevicePrimaryCtxRetain(done(driver.cuDeviceGet(0))))
    done(driver.cuCtxSetCurrent(context))


def benchmark(bundle: Path, case: dict[str, Any], arena: int) -> Callable[[Any], None]:
    """Return the function that NVBench calls for a case, whose arrays lie in the arena at their places."""

    def measure(state: Any) -> None:
        addresses = {buffer["name"]: filled(bundle, buffer, arena) for buffer in case["buffers"]}
        codes = [np.fromfile(bundle / name, np.uint8) for name in case["modules"]]
        modules = [done(driver.cuModuleLoadData(code.ctypes.data)) for code in codes]
        steps = [bound(step, addresses, modules) for step in case["steps"]]
        done(driver.cuCtxSynchronize())

        def queue(launch: Any) -> None:
            stream = driver.CUstream(launch.get_stream().addressof())
            for step in steps:
                step(stream)

        state.exec(queue)

    return measure


def filled(bundle: Path, buffer: dict[str, Any], arena: int) -> Any:
    """Return a buffer's address in the arena; an input is filled by repeating its beginning."""
    size = buffer["bytes"]
    address = driver.CUdeviceptr(arena + buffer["place"])
    if buffer["beginning"]:
        data = np.fromfile(bundle / buffer["beginning"], np.uint8)
        done(driver.cuMemcpyHtoD(address, data.ctypes.data, data.nbytes))
        written = data.nbytes
        while written < size:
            count = min(written, size - written)
            done(driver.cuMemcpyDtoD(driver.CUdeviceptr(int(address) + written), address, count))
            written += count
    return address


def bound(step: dict[str, Any], addresses: dict[str, Any], modules: list[Any]) -> Queue:
    """Return a step with all its arguments, so that queueing it is one call of the driver."""
    if step["step"] == "memset":
        address = addresses[step["buffer"]]
        return lambda stream: done(driver.cuMemsetD8Async(address, step["byte"], step["bytes"], stream))
    return Kernel(step, addresses, modules[step["module"]])


class Kernel:
    """A launch that is ready to be queued."""

    def __init__(self, step: dict[str, Any], addresses: dict[str, Any], module: Any) -> None:
        self._entry = done(driver.cuModuleGetFunction(module, step["entry"].encode()))
        self._shape = (*step["grid"], *step["block"], step["shared_bytes"])
        if step["shared_bytes"]:
            attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            done(driver.cuFuncSetAttribute(self._entry, attribute, step["shared_bytes"]))
        self._values = [argument(description, addresses) for description in step["args"]]
        self._pointers = np.array([value.ctypes.data for value in self._values], np.uint64)
        self._arguments = self._pointers.ctypes.data

    def __call__(self, stream: Any) -> None:
        """Queue the launch."""
        done(driver.cuLaunchKernel(self._entry, *self._shape, stream, self._arguments, 0))


def argument(description: dict[str, Any], addresses: dict[str, Any]) -> Any:
    """Return a kernel's argument as bytes."""
    if description["kind"] == "buffer":
        return np.array([int(addresses[description["buffer"]])], np.uint64)
    return np.array([description["value"]], description["dtype"])


if __name__ == "__main__":
    main()
