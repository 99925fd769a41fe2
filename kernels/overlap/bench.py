"""y = 1 / sqrt(x) for n floats that lie in the host's memory, with the results wanted there.

A copy to the device, a kernel, a copy back: a GPU has an engine for each, so three chunks of the data can be processed
at the same time. The variants differ in how much the engines overlap. A sample begins with the input in the host's
memory and ends when the last result is there. The untimed steps before and after it copy the input from the device,
where perfsvc put it, and the results back to it, where perfsvc checks them.
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


# --- what all variants have in common --------------------------------------------------------------------------------

host = {}  # the input and the results, allocated once for all samples of a case
chunks = []


class Chunk:
    """A part of the data, with its three operations, each queued on a stream."""

    def __init__(self, cuda, kernel, arrays, start, stop):
        self.cuda, self.kernel = cuda, kernel
        self.x, self.y = host["x"][start:stop], host["y"][start:stop]
        self.device_x, self.device_y = (address(arrays[name]) + 4 * start for name in ("device_x", "device_y"))

    def bring(self, stream):
        """Copies the input to the device."""
        self.cuda.memcpy_htod_async(self.device_x, self.x, stream)

    def compute(self, stream):
        """Launches the kernel."""
        grid, block, n = (ceil_div(len(self.x), BLOCK), 1), (BLOCK, 1, 1), len(self.x)
        self.kernel.prepared_async_call(grid, block, stream, self.device_y, self.device_x, n)

    def fetch(self, stream):
        """Copies the results to the host."""
        self.cuda.memcpy_dtoh_async(self.y, self.device_y, stream)


def address(array):
    return array.__cuda_array_interface__["data"][0]


@cache
def streams(count):
    import pycuda.driver as cuda

    return [cuda.Stream() for _ in range(count)]


def in_memory_of(empty, arrays, binary):
    """The input in host memory that ``empty`` allocates, with room for the results, in chunks."""
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
    """The results to where they are checked."""
    import pycuda.driver as cuda

    cuda.memcpy_htod(address(arrays["y"]), host["y"])


# --- what differs ----------------------------------------------------------------------------------------------------


def depth_first(used):
    """Queue all operations of chunk after chunk, on the streams in turn."""
    for chunk, own in zip(chunks, cycle(used), strict=False):
        chunk.bring(own)
        chunk.compute(own)
        chunk.fetch(own)
        yield own


def wait_for(used):
    for stream in used:
        stream.synchronize()


def one_stream(arrays, stream):
    """A stream does one thing after the other: at any time two of the three engines have nothing to do."""
    wait_for(set(depth_first(streams(1))))


def two_streams_depth_first(arrays, stream):
    """Work that waits on one stream does not delay the other: while a chunk is computed, another is copied."""
    wait_for(set(depth_first(streams(2))))


def three_streams(arrays, stream):
    """A third stream gives the third engine something to do: one chunk comes, one is computed, one goes."""
    wait_for(set(depth_first(streams(3))))


def two_streams_breadth_first(arrays, stream):
    """Two chunks at a time: both are brought, then both computed, then both fetched.

    Each stream has the same work as depth first, queued in another order. Old GPUs had one queue for all streams, in
    which a fetch that waited for its kernel delayed the next chunk behind it. This order helped there.
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
    """Depth first on two streams, with a callback to the host for each chunk that is back.

    The driver calls a host function in a thread of its own, and the stream continues when the function has returned.
    Here it is the C library's ``sem_post``, on a semaphore that this thread waits for. It runs no Python and takes no
    GIL, so the cost is that of the way from the GPU to the host and back. A Python function, and with it the stream,
    would have to wait for the GIL.
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
        self.memory = (ctypes.c_uint64 * 8)()  # more than a sem_t has
        self.library.sem_init(self.memory, 0, 0)

    def post_from(self, stream):
        """Queues a callback (PyCUDA has none)."""
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
        cache="warm",  # the data comes over the bus and not from the cache
    )


benchmark = Benchmark(
    axes={"n": (2**24,)},
    smoke={"n": 100_003},
    inputs=inputs,
    outputs={"y": output("float32", lambda n: n)},
    reference=lambda x: 1 / np.sqrt(x),
    tolerance=Tolerance(max=1e-6, mean=2e-7),  # Newton's method ends within a few roundings of 6e-8
    work=lambda n: Work(read_bytes=4 * n, written_bytes=4 * n),
    variants=[
        # The GPU cannot access memory that the system may swap out: the host's processor copies it, piece by piece, to
        # pinned memory of the driver, and the GPU copies it from there.
        variant("pageable", one_stream, in_pageable_memory),
        # A second stream does not help, because the host waits until a chunk's results are copied.
        variant("pageable_two_streams", two_streams_depth_first, in_pageable_memory),
        # Page-locked memory stays where it is. The GPU reads and writes it at the pace of the bus, without the host.
        variant("pinned", one_stream, in_pinned_memory),
        variant("breadth_first", two_streams_breadth_first, in_pinned_memory),
        variant("depth_first", two_streams_depth_first, in_pinned_memory),
        variant("three_streams", three_streams, in_pinned_memory),
        variant("called_back", called_back, in_pinned_memory),
    ],
)
