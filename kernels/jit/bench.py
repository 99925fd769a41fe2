"""The time to load a kernel before its first launch, for a kernel of few instructions and for one of many.

A cubin holds instructions of one architecture, and the driver only copies them to the GPU. PTX is text for its own
architecture and all later ones, and the driver has to assemble it for the GPU. The driver keeps the result in a cache
on disk (``~/.nv/ComputeCache``). So PTX loads slowly once on each machine, and once more after each new driver. Without
the cache, for example with ``CUDA_CACHE_DISABLE``, it loads slowly every time.
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
    """Time the loading of a kernel that is in the driver's cache, if there is a cache: load it once before."""
    load(binary)
    return report(arrays, [binary] * LOADS)


def as_if_new(arrays, stream, binary):
    """Time the loading of PTX that is not in the cache: a new comment makes the driver assemble the text again."""
    return report(arrays, [binary + b"\n// " + os.urandom(8).hex().encode() for _ in range(LOADS)])


def report(arrays, binaries):
    """Load each binary, launch the last one, and return the median time of loading."""
    loads_s = []
    for binary in binaries:
        kernel = None  # unloads the previous kernel before the clock starts
        start = time.perf_counter()
        kernel = load(binary)
        loads_s.append(time.perf_counter() - start)
    y, x = (np.uint64(arrays[name].__cuda_array_interface__["data"][0]) for name in ("y", "x"))
    kernel(y, x, np.int32(N), grid=(-(-N // BLOCK), 1), block=(BLOCK, 1, 1))
    return {"load_s": statistics.median(loads_s)}


def load(binary):
    """Return the kernel, ready for a launch; with lazy loading, ``get_function`` copies its code to the device."""
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
    tolerance=Tolerance(max=1e-6, mean=2e-7),  # the last additions round the largest terms
    work=Work(read_bytes=4 * N, written_bytes=4 * N),
    variants=[
        variant("ptx_cold", as_if_new, "-ptx"),
        variant("ptx_warm", as_it_is, "-ptx"),
        variant("cubin", as_it_is),
    ],
)
