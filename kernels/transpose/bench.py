"""b = transpose of a, for a square matrix of n x n floats in row-major order.

There is no arithmetic. A variant is fast if it reads and writes memory in full lines. The reference variant copies the
same bytes without transposing them.
"""

import ctypes
import functools

from perfsvc.suite import Benchmark, Tolerance, Variant, Work, ceil_div, output

SMALL, MIDDLE, LARGE = 256, 4096, 8192


def inputs(rng, n):
    return {"a": rng.random((n, n), dtype="float32")}


def at(*points):
    """Return a function for ``only``: of the three full sizes it allows just these, and it allows all other sizes."""
    return lambda n: n in points or n not in {SMALL, MIDDLE, LARGE}


def tiled(name, only, **params):
    """Return a variant with a square tile in shared memory, and blocks as wide as the tile."""
    return Variant(
        name,
        source="tiled.cu",
        entry="transpose_tiled",
        params=params,
        grid=lambda n, TILE: (ceil_div(n, TILE), ceil_div(n, TILE)),
        block=lambda TILE, ROWS: (TILE, ROWS),
        args=("b", "a", "n"),
        only=only,
    )


def oblong(width, height, only):
    """Return a variant whose tile and block have this shape."""
    return Variant(
        f"oblong{width}x{height}",
        source="oblong.cu",
        entry="transpose_oblong",
        params={"WIDTH": width, "HEIGHT": height},
        grid=lambda n, WIDTH, HEIGHT: (ceil_div(n, WIDTH), ceil_div(n, HEIGHT)),
        block=(width, height),
        args=("b", "a", "n"),
        only=only,
    )


def with_cupy(arrays, stream):
    import cupy

    a, b = cupy.asarray(arrays["a"]), cupy.asarray(arrays["b"])
    with cupy.cuda.ExternalStream(stream):
        cupy.copyto(b, a.T)


@functools.cache
def triton_kernel():
    import triton
    import triton.language as tl

    @triton.jit
    def transpose(b, a, n, TILE: tl.constexpr):
        x = tl.program_id(0) * TILE + tl.arange(0, TILE)[None, :]
        y = tl.program_id(1) * TILE + tl.arange(0, TILE)[:, None]
        inside = (x < n) & (y < n)
        tile = tl.load(a + y * n + x, mask=inside)
        tl.store(b + tl.trans(x * n + y), tl.trans(tile), mask=tl.trans(inside))

    return transpose


def with_triton(arrays, stream):
    import torch  # Triton launches on the current stream of torch

    a, b = (torch.as_tensor(arrays[name], device="cuda") for name in ("a", "b"))
    n, tile = len(a), 64
    with torch.cuda.stream(torch.cuda.ExternalStream(stream)):
        triton_kernel()[ceil_div(n, tile), ceil_div(n, tile)](b, a, n, TILE=tile)


def device_copy(arrays, stream):  # calls the driver, because PyCUDA's copy does not accept the address of a stream
    a, b = arrays["a"], arrays["b"]
    if not stream:
        b[:] = a
        return
    target, source = (array.__cuda_array_interface__["data"][0] for array in (b, a))
    driver = ctypes.CDLL("libcuda.so.1")
    queue = driver.cuMemcpyDtoDAsync_v2
    queue.argtypes = (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_size_t, ctypes.c_void_p)
    rows, columns = a.shape
    if status := queue(target, source, rows * columns * 4, stream):
        raise RuntimeError(f"cuMemcpyDtoDAsync returned {status}")


benchmark = Benchmark(
    axes={"n": (SMALL, MIDDLE, LARGE)},
    smoke={"n": 193},
    inputs=inputs,
    outputs={"b": output("float32", lambda n: (n, n))},
    reference=lambda a: a.T,
    tolerance=Tolerance(max=0.0, mean=0.0),  # elements are only moved, so they are exact
    work=lambda n: Work(read_bytes=4 * n * n, written_bytes=4 * n * n),
    relative_to="copy",
    variants=[
        Variant(
            "one_thread",
            source="one_thread.cu",
            entry="transpose_one_thread",
            grid=1,
            block=1,
            args=("b", "a", "n"),
            only=lambda n: n <= SMALL,
        ),
        Variant(
            "thread_a_row",
            source="thread_a_row.cu",
            entry="transpose_thread_a_row",
            grid=lambda n: ceil_div(n, 64),
            block=64,
            args=("b", "a", "n"),
            only=at(LARGE),
        ),
        Variant(
            "naive",
            source="naive.cu",
            entry="transpose_naive",
            grid=lambda n: (ceil_div(n, 32), ceil_div(n, 8)),
            block=(32, 8),
            args=("b", "a", "n"),
        ),
        tiled("shared16", at(LARGE), TILE=16, ROWS=16, PAD=0),
        tiled("shared32", at(LARGE), TILE=32, ROWS=32, PAD=0),
        tiled("padded32", at(LARGE), TILE=32, ROWS=32, PAD=1),
        tiled("tiled", at(MIDDLE, LARGE), TILE=(32,), PAD=(0, 1), ROWS=8),
        oblong(1, 2, at(MIDDLE)),
        oblong(8, 32, at(LARGE)),
        oblong(32, 8, at(LARGE)),
        Variant(
            "swizzled",
            source="swizzled.cu",
            entry="transpose_swizzled",
            params={"ROWS": 8},
            grid=lambda n: (ceil_div(n, 32), ceil_div(n, 32)),
            block=lambda ROWS: (32, ROWS),
            args=("b", "a", "n"),
            only=at(LARGE),
        ),
        Variant(
            "registers",
            source="registers.cu",
            entry="transpose_registers",
            grid=lambda n: (ceil_div(n, 4 * 8), ceil_div(n, 4 * 32)),
            block=(8, 32),
            args=("b", "a", "n"),
            only=at(LARGE),
        ),
        Variant(
            "float4",
            source="float4.cu",
            entry="transpose_float4",
            params={"WIDTH": 64, "HEIGHT": 64},
            grid=lambda n, WIDTH, HEIGHT: (ceil_div(n, HEIGHT), ceil_div(n, WIDTH)),
            block=lambda WIDTH, HEIGHT: WIDTH // 4 * HEIGHT // 4,
            args=("b", "a", "n"),
            only=at(MIDDLE, LARGE),
        ),
        Variant("cupy", run=with_cupy, requires=("cuda", "import cupy"), only=at(LARGE)),
        Variant("triton", run=with_triton, requires=("cuda", "import torch", "import triton"), only=at(LARGE)),
        Variant("copy", run=device_copy, reference=lambda a: a),
    ],
)
