"""C = A B^T on tensor cores, for an m x k matrix A and an n x k matrix B of floats, which are rounded to TF32.

TF32 has the exponent of a float and 10 bits of its mantissa. Hopper's tensor cores read operands of four bytes from
shared memory only if their rows lie along k. The rows of both matrices lie along k, also for cuBLAS.
The kernels are those of matmul_bf16, because their tiles have the same number of bytes.
"""

import functools

import numpy as np

from perfsvc.suite import Benchmark, Tolerance, Variant, Work, ceil_div, output, tensor_map

TILE_ROWS = 128
ROW_BYTES = 128  # of a row of a tile, along k; TMA swizzles such rows
DEPTH = ROW_BYTES // 4
SMS = 132  # multiprocessors of an H100 or H200; on a smaller GPU some blocks start later
MANY = 1000
"""With fewer elements than this, the mean error is too uncertain to check."""


def inputs(rng, m, n, k):
    return {
        "A": rng.uniform(-1.0, 1.0, (m, k)).astype("float32"),
        "B": rng.uniform(-1.0, 1.0, (n, k)).astype("float32"),
    }


def tolerance(m, n):
    # Rounding to 10 bits changes a factor by 1.9e-4 of its rms, and a product by 2.6e-4. A sum of products has the same
    # relative error: 1.9e-4 in the mean and at most 1.5e-3. All variants have these errors, also if TMA rounds the
    # floats while it copies them. If tensor cores truncated factors that are not rounded, the mean would be 4.4e-4; the
    # check notices this for many elements. A missing product would be an error of 1 / sqrt(k), which is 2e-2.
    return Tolerance(max=3e-3, mean=3e-4 if m * n >= MANY else 3e-3)


@functools.cache
def cublas_handle():
    """Return the handle of the process; creating one takes longer than any product here."""
    from nvmath.bindings import cublas

    return cublas.create()


def with_cublas(arrays, stream):
    """Call cuBLAS; COMPUTE_32F_FAST_TF32 lets it round the inputs.

    It has its matrices by columns, so that it takes each of ours for its transpose: C^T = B A^T.
    """
    from nvmath import CudaDataType
    from nvmath.bindings import cublas

    a, b, c = (arrays[name].__cuda_array_interface__["data"][0] for name in "ABC")
    (m, k), (n, _) = arrays["A"].shape, arrays["B"].shape
    one, zero = np.float32([1]), np.float32([0])
    handle = cublas_handle()
    cublas.set_stream(handle, stream)
    cublas.gemm_ex(
        *(handle, cublas.Operation.T, cublas.Operation.N, n, m, k),
        *(one.ctypes.data, b, CudaDataType.CUDA_R_32F, k, a, CudaDataType.CUDA_R_32F, k),
        *(zero.ctypes.data, c, CudaDataType.CUDA_R_32F, n),
        *(cublas.ComputeType.COMPUTE_32F_FAST_TF32, cublas.GemmAlgo.DFALT),
    )


def on_tiles(name, **fields):
    """Return a variant whose block of 256 threads computes a tile of 128 x 128."""
    return Variant(
        name,
        source=f"../matmul_bf16/{name}.cu",
        entry=f"matmul_{name}",
        grid=lambda m, n: (ceil_div(n, 128), ceil_div(m, 128)),
        block=256,
        **fields,
    )


def ring(name, *, grid, **params):
    """Return a variant with one producer and two consumers, of 128 threads each."""
    return Variant(
        name,
        source="../matmul_bf16/wgmma_ring.cu",
        entry="matmul_wgmma_ring",
        params={"TF32": 1, **params},
        requires=("sm_90a", "k % 4 == 0", "n % 2 == 0"),
        grid=grid,
        block=384,
        shared_bytes=lambda COLUMNS, STAGES: ring_bytes(TILE_ROWS + COLUMNS, STAGES),
        args=(
            tensor_map("A", box=(TILE_ROWS, DEPTH), swizzle=ROW_BYTES, element="tfloat32"),
            tensor_map(
                "B",
                box=lambda COLUMNS, CLUSTER: (COLUMNS // CLUSTER, DEPTH),
                swizzle=ROW_BYTES,
                element="tfloat32",
            ),
            *("C", "m", "n", "k"),
        ),
    )


def ring_bytes(rows, stages):
    """Return the bytes of shared memory for stages of this many rows; each stage has two barriers of 8 bytes."""
    return stages * (rows * ROW_BYTES + 16)


benchmark = Benchmark(
    points=[{"m": 4096, "n": 4096, "k": 4096}],
    smoke={"m": 131, "n": 198, "k": 328},
    inputs=inputs,
    outputs={"C": output("float32", lambda m, n: (m, n))},
    reference=lambda A, B: A @ B.T,
    tolerance=tolerance,
    work=lambda m, n, k: Work(
        read_bytes=4 * k * (m + n), written_bytes=4 * m * n, flops=2 * m * n * k, precision="tf32"
    ),
    relative_to="cublas",
    variants=[
        on_tiles("wmma", params={"TF32": 1}, requires="sm_80", args=("C", "A", "B", "m", "n", "k")),
        on_tiles(
            "wmma_async", params={"TF32": 1}, requires=("sm_80", "k % 4 == 0"), args=("C", "A", "B", "m", "n", "k")
        ),
        on_tiles(
            "wgmma",
            params={"TF32": 1, "STAGES": 3},
            requires=("sm_90a", "k % 4 == 0", "n % 2 == 0"),
            shared_bytes=lambda STAGES: ring_bytes(2 * TILE_ROWS, STAGES),
            args=(
                tensor_map("A", box=(TILE_ROWS, DEPTH), swizzle=ROW_BYTES, element="tfloat32"),
                tensor_map("B", box=(TILE_ROWS, DEPTH), swizzle=ROW_BYTES, element="tfloat32"),
                *("C", "m", "n", "k"),
            ),
        ),
        ring(
            "wgmma_ring",
            grid=lambda m, n, COLUMNS: ceil_div(m, TILE_ROWS) * ceil_div(n, COLUMNS),
            COLUMNS=256,
            STAGES=4,
            GROUP=1,
            CLUSTER=1,
        ),
        ring("wgmma_persistent", grid=SMS, COLUMNS=256, STAGES=4, GROUP=16, CLUSTER=1),
        ring("wgmma_cluster", grid=SMS, COLUMNS=256, STAGES=4, GROUP=8, CLUSTER=2),
        Variant("cublas", run=with_cublas, requires=("cuda", "import nvmath")),
    ],
)
