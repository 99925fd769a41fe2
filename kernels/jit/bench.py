"""Loading one kernel: what a program pays before its first launch, for a kernel of few instructions and one of many.

A cubin holds instructions of one architecture, and the driver only puts them in place. PTX is text for every
architecture since its own, and the driver has to assemble it for the GPU that it finds. It keeps what it made in a
cache on disk (``~/.nv/ComputeCache``) and finds it there the next time. So PTX loads slowly once on each machine,
once more after each new driver, and every time where there is no such cache (``CUDA_CACHE_DISABLE``, say).
"""

import os
import statistics
import time

import numpy as np

from perfsvc.suite import Benchmark, Tolerance, Variant, Work, output

N = 10_007
BLOCK = 256
LOADS = 11


def inputs(rng):
    return {"x": rng.uniform(0.1, 0.5, N).astype("float32")}


def reference(x, terms):
    return sum(x**k / k for k in range(1, terms + 1))


def as_it_is(arrays, stream, binary):
    """Load once before all others, so that the driver's cache, if there is one, has what the others load."""
    load(binary)
    return report(arrays, [binary] * LOADS)


def as_if_new(arrays, stream, binary):
    """PTX with a comment that no cache has seen: the driver compares the whole text, and assembles it again."""
    return report(arrays, [binary + b"\n// " + os.urandom(8).hex().encode() for _ in range(LOADS)])


def report(arrays, binaries):
    """The median time of loading, and a launch of what was loaded last."""
    loads_s = []
    for binary in binaries:
        kernel = None  # unloads the one before, outside the time
        start = time.perf_counter()
        kernel = load(binary)
        loads_s.append(time.perf_counter() - start)
    y, x = (np.uint64(arrays[name].__cuda_array_interface__["data"][0]) for name in ("y", "x"))
    kernel(y, x, np.int32(N), grid=(-(-N // BLOCK), 1), block=(BLOCK, 1, 1))
    return {"load_s": statistics.median(loads_s)}


def load(binary):
    """The kernel, ready to be launched; with lazy loading its code comes to the device when it is asked for."""
    import pycuda.driver as cuda

    return cuda.module_from_buffer(binary).get_function("series")


def variant(name, function, options=()):
    return Variant(
        name,
        kind="host",
        source="series.cu",
        params={"TERMS": lambda terms: terms},
        options=options,
        run=function,
        requires="cuda",
    )


benchmark = Benchmark(
    axes={"terms": (32, 2048)},
    smoke={"terms": 40},
    inputs=inputs,
    outputs={"y": output("float32", N)},
    reference=reference,
    tolerance=Tolerance(max=1e-6, mean=2e-7),  # the last steps are with the largest terms, and round the most
    work=Work(read_bytes=4 * N, written_bytes=4 * N),
    variants=[
        variant("ptx_cold", as_if_new, "-ptx"),
        variant("ptx_warm", as_it_is, "-ptx"),
        variant("cubin", as_it_is),
    ],
)
