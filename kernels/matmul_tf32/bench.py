"""C = A B^T on tensor cores, for an m x k matrix A and an n x k matrix B of floats, of which they keep TF32.

TF32 has the exponent of a float and 10 bits of its mantissa. Hopper's tensor cores take operands of four bytes from
shared memory only where their rows lie along k. So do both matrices here, and the library is given them as they are.
The kernels are those of matmul_bf16: counted in bytes their tiles are the same.
"""

import functools

import numpy as np

from perfsvc.suite import Benchmark, Tolerance, Variant, Work, ceil_div, output, tensor_map

TILE_ROWS = 128
ROW_BYTES = 128  # of a tile along k: what TMA swizzles
DEPTH = ROW_BYTES // 4
SMS = 132  # of an H100 or H200; on a smaller GPU some blocks wait for their turn
MANY = 1000
"""With fewer errors their mean is too uncertain to be checked."""


def inputs(rng, m, n, k):
    return {
        "A": rng.uniform(-1.0, 1.0, (m, k)).astype("float32"),
        "B": rng.uniform(-1.0, 1.0, (n, k)).astype("float32"),
    }


def tolerance(m, n):
    # Rounding to 10 bits moves a factor by 1.9e-4 of its rms, a product by 2.6e-4, and so a sum of any number of them:
    # 1.9e-4 in the mean of the errors, 1.5e-3 at most. All variants are there, also those whose floats TMA rounds on
    # their way. If tensor cores truncate unrounded factors, the mean is 4.4e-4, which is noticed if there are many
    # errors. One product left out is 1 / sqrt(k), 2e-2.
    return Tolerance(max=3e-3, mean=3e-4 if m * n >= MANY else 3e-3)


@functools.cache
def cublas_handle():
    """Return the handle of the process; creating one takes longer than any product here."""
    from nvmath.bindings import cublas

    return cublas.create()


def with_cublas(arrays, stream):
    """COMPUTE_32F_FAST_TF32 lets cuBLAS round the inputs.

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
    """A variant whose block of 256 threads computes a tile of 128 x 128."""
    return Variant(
        name,
        source=f"../matmul_bf16/{name}.cu",
        entry=f"matmul_{name}",
        grid=lambda m, n: (ceil_div(n, 128), ceil_div(m, 128)),
        block=256,
        **fields,
    )


def ring(name, *, grid, **params):
    """A variant of the kernel that has a producer and two consumers of 128 threads each."""
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
    """Shared memory for stages of that many rows of tiles, each with two barriers of 8 bytes."""
    return stages * (rows * ROW_BYTES + 16)


benchmark = Benchmark(
    points=[{"m": 4096, "n": 4096, "k": 4096}],
    smoke={"m": 131, "n": 198, "k": 328},
    inputs=inputs,
    outputs={"C": output("float32", lambda m, n: (m, n))},
    reference=lambda A, B: A @ B.T,
    tolerance=tolerance,
    work=lambda m, n, k: Work(read_bytes=4 * k * (m + n), written_bytes=4 * m * n, flops=2 * m * n * k),
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
