"""y = 1 / sqrt(x) for n floats. The input and the results are in the host's memory.

Each chunk of the data is copied to the device, processed by a kernel, and copied back. A GPU has an engine for each of
these operations, so it can process three chunks at the same time. The variants differ in how much the engines overlap.
A sample begins with the input in the host's memory, and ends when the last result is there. perfsvc puts the input on
the device, and checks the results there. So an untimed step before the sample copies the input to the host, and another
one after it copies the results to the device.
"""

import ctypes
from functools import cache
from itertools import cycle

import numpy as np

from perfsvc.suite import Benchmark, Tolerance, Variant, Work, call, ceil_div, output, scratch

CHUNKS = 8
BLOCK = 256


def inputs(rng, n):
    return {"x": rng.uniform(1.0, 4.0, n).astype("float32")}


# --- shared by all variants ------------------------------------------------------------------------------------------

host = {}  # the input and the results, allocated once for all samples of a case
chunks = []


class Chunk:
    """A part of the data. Each method queues one operation on a stream."""

    def __init__(self, cuda, kernel, arrays, start, stop):
        self.cuda, self.kernel = cuda, kernel
        self.x, self.y = host["x"][start:stop], host["y"][start:stop]
        self.device_x, self.device_y = (address(arrays[name]) + 4 * start for name in ("device_x", "device_y"))

    def bring(self, stream):
        """Copy the input to the device."""
        self.cuda.memcpy_htod_async(self.device_x, self.x, stream)

    def compute(self, stream):
        """Launch the kernel."""
        grid, block, n = (ceil_div(len(self.x), BLOCK), 1), (BLOCK, 1, 1), len(self.x)
        self.kernel.prepared_async_call(grid, block, stream, self.device_y, self.device_x, n)

    def fetch(self, stream):
        """Copy the results to the host."""
        self.cuda.memcpy_dtoh_async(self.y, self.device_y, stream)


def address(array):
    return array.__cuda_array_interface__["data"][0]


@cache
def streams(count):
    import pycuda.driver as cuda

    return [cuda.Stream() for _ in range(count)]


def in_memory_of(empty, arrays, binary):
    """Copy the input to host memory, and clear the results there; ``empty`` allocates both on the first call."""
    import pycuda.driver as cuda

    x = arrays["x"]
    (n,) = x.shape
    if not chunks:
        host.update({name: empty(n, np.float32) for name in ("x", "y")})
        kernel = cuda.module_from_buffer(binary).get_function("inverse_root")
        kernel.prepare("PPi")
        size = ceil_div(n, CHUNKS)
        chunks.extend(Chunk(cuda, kernel, arrays, start, start + size) for start in range(0, n, size))
    cuda.memcpy_dtoh(host["x"], address(x))
    host["y"].fill(np.nan)


def in_pageable_memory(arrays, stream, binary):
    in_memory_of(np.empty, arrays, binary)


def in_pinned_memory(arrays, stream, binary):
    import pycuda.driver as cuda

    in_memory_of(cuda.pagelocked_empty, arrays, binary)


def deliver(arrays, stream):
    """Copy the results to the device, where perfsvc checks them."""
    import pycuda.driver as cuda

    cuda.memcpy_htod(address(arrays["y"]), host["y"])


# --- the variants ----------------------------------------------------------------------------------------------------


def depth_first(used):
    """Queue all operations of each chunk on one stream, in turn; yield the stream of each chunk."""
    for chunk, own in zip(chunks, cycle(used), strict=False):
        chunk.bring(own)
        chunk.compute(own)
        chunk.fetch(own)
        yield own


def wait_for(used):
    for stream in used:
        stream.synchronize()


def one_stream(arrays, stream):
    """A stream runs its operations one after the other, so two of the three engines are always idle."""
    wait_for(set(depth_first(streams(1))))


def two_streams_depth_first(arrays, stream):
    """One stream does not wait for the other: while the kernel processes a chunk, another chunk is copied."""
    wait_for(set(depth_first(streams(2))))


def three_streams(arrays, stream):
    """All three engines work: one chunk is copied in, one is processed, and one is copied out."""
    wait_for(set(depth_first(streams(3))))


def two_streams_breadth_first(arrays, stream):
    """Process two chunks at a time: copy both to the device, launch both kernels, copy both results back.

    Each stream has the same operations as with depth first, queued in another order. Old GPUs had one queue for all
    streams. There a copy that waited for its kernel delayed the next chunk, and this order helped.
    """
    pair = streams(2)
    for first in range(0, len(chunks), 2):
        both = list(zip(chunks[first : first + 2], pair, strict=False))
        for chunk, own in both:
            chunk.bring(own)
        for chunk, own in both:
            chunk.compute(own)
        for chunk, own in both:
            chunk.fetch(own)
    wait_for(pair)


def called_back(arrays, stream):
    """Process depth first on two streams; a callback reports to the host when a chunk has been copied back.

    The driver calls a host function in a thread of its own, and the stream continues when the function returns. Here it
    is the C library's ``sem_post``, on a semaphore that this thread waits for. It does not need the GIL, so the
    variant measures only the cost of a callback. A Python function would wait for the GIL, and so would the stream.
    """
    done = semaphore()
    for own in depth_first(streams(2)):
        done.post_from(own)
    for _ in chunks:
        done.wait()


class Semaphore:
    """A semaphore of the C library, which a stream can post."""

    def __init__(self):
        self.driver, self.library = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL(None)
        self.memory = (ctypes.c_uint64 * 8)()  # larger than a sem_t
        self.library.sem_init(self.memory, 0, 0)

    def post_from(self, stream):
        """Queue a callback on a stream (PyCUDA has no function for this)."""
        post = ctypes.cast(self.library.sem_post, ctypes.c_void_p)
        status = self.driver.cuLaunchHostFunc(ctypes.c_void_p(stream.handle), post, self.memory)
        if status:
            raise RuntimeError(f"cuLaunchHostFunc: CUDA error {status}")

    def wait(self):
        """Wait for one callback; wait again if a signal interrupts."""
        while self.library.sem_wait(self.memory):
            pass


@cache
def semaphore():
    return Semaphore()


def variant(name, function, memory):
    return Variant(
        name,
        kind="pipeline",
        params={"STEPS": 512},
        scratch={each: scratch("float32", lambda n: n) for each in ("device_x", "device_y")},
        steps=[call(memory, source="inverse_root.cu", timed=False), call(function), call(deliver, timed=False)],
        requires="cuda",
        cache="warm",  # the data comes over the bus, so the GPU's cache need not be emptied
    )


benchmark = Benchmark(
    axes={"n": (2**24,)},
    smoke={"n": 100_003},
    inputs=inputs,
    outputs={"y": output("float32", lambda n: n)},
    reference=lambda x: 1 / np.sqrt(x),
    tolerance=Tolerance(max=1e-6, mean=2e-7),  # a few rounding errors of 6e-8 remain after Newton's method
    work=lambda n: Work(read_bytes=4 * n, written_bytes=4 * n),
    variants=[
        # The GPU cannot access memory that the system may swap out. So the host's processor copies the data piece by
        # piece to pinned memory of the driver, and the GPU copies the data from there.
        variant("pageable", one_stream, in_pageable_memory),
        # A second stream does not help, because the host waits until a chunk's results are copied.
        variant("pageable_two_streams", two_streams_depth_first, in_pageable_memory),
        # The system never swaps out pinned memory. The GPU accesses it at the speed of the bus, without the host.
        variant("pinned", one_stream, in_pinned_memory),
        variant("breadth_first", two_streams_breadth_first, in_pinned_memory),
        variant("depth_first", two_streams_depth_first, in_pinned_memory),
        variant("three_streams", three_streams, in_pinned_memory),
        variant("called_back", called_back, in_pinned_memory),
    ],
)
