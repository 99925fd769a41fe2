"""C = A B^T on tensor cores, for an m x k matrix A and an n x k matrix B of bfloat16, with sums in float32.

The rows of both matrices lie along k, as usual for the inputs and weights of a layer; cuBLAS gets the same matrices.
Tensor cores multiply faster than a simple kernel loads its operands. A variant is fast if they never wait for operands.
"""

import functools

import numpy as np

from perfsvc.suite import Benchmark, Tolerance, Variant, Work, ceil_div, output, tensor_map

TILE_ROWS = 128
ROW_BYTES = 128  # of a row of a tile, along k; TMA swizzles such rows
DEPTH = ROW_BYTES // 2
SMS = 132  # multiprocessors of an H100 or H200; on a smaller GPU some blocks start later


def inputs(rng, m, n, k):
    return {
        "A": rng.uniform(-1.0, 1.0, (m, k)).astype("bfloat16"),
        "B": rng.uniform(-1.0, 1.0, (n, k)).astype("bfloat16"),
    }


@functools.cache
def cublas_handle():
    """Return the handle of the process; creating one takes longer than any product here."""
    from nvmath.bindings import cublas

    return cublas.create()


def with_cublas(arrays, stream):
    """Call cuBLAS; COMPUTE_32F adds the products, which are exact in float32, in float32.

    cuBLAS expects matrices by columns, so it reads each matrix as its transpose: C^T = B A^T.
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
        *(one.ctypes.data, b, CudaDataType.CUDA_R_16BF, k, a, CudaDataType.CUDA_R_16BF, k),
        *(zero.ctypes.data, c, CudaDataType.CUDA_R_32F, n),
        *(cublas.ComputeType.COMPUTE_32F, cublas.GemmAlgo.DFALT),
    )


def on_tiles(name, **fields):
    """Return a variant whose block of 256 threads computes a tile of 128 x 128."""
    return Variant(
        name,
        source=f"{name}.cu",
        entry=f"matmul_{name}",
        grid=lambda m, n: (ceil_div(n, 128), ceil_div(m, 128)),
        block=256,
        **fields,
    )


def ring(name, *, grid, **params):
    """Return a variant with one producer and two consumers, of 128 threads each."""
    return Variant(
        name,
        source="wgmma_ring.cu",
        entry="matmul_wgmma_ring",
        params={"TF32": 0, **params},
        requires=("sm_90a", "k % 8 == 0", "n % 2 == 0"),
        grid=grid,
        block=384,
        shared_bytes=lambda COLUMNS, STAGES: ring_bytes(TILE_ROWS + COLUMNS, STAGES),
        args=(
            tensor_map("A", box=(TILE_ROWS, DEPTH), swizzle=ROW_BYTES),
            tensor_map(
                "B",
                box=lambda COLUMNS, CLUSTER: (COLUMNS // CLUSTER, DEPTH),
                swizzle=ROW_BYTES,
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
    # Products are exact, so only the sums are rounded. Tensor cores truncate them, with an error of up to 2^-23 in each
    # of k / 16 additions, which is 3e-5 at k=4096. An H100 has at most half of this error, and 2.4e-6 in the mean. A
    # missing product would be an error of 1 / sqrt(k), which is 2e-2.
    tolerance=Tolerance(max=6e-5, mean=1e-5),
    work=lambda m, n, k: Work(read_bytes=2 * k * (m + n), written_bytes=4 * m * n, flops=2 * m * n * k),
    relative_to="cublas",
    variants=[
        on_tiles("wmma", params={"TF32": 0}, requires="sm_80", args=("C", "A", "B", "m", "n", "k")),
        on_tiles(
            "wmma_async", params={"TF32": 0}, requires=("sm_80", "k % 8 == 0"), args=("C", "A", "B", "m", "n", "k")
        ),
        on_tiles(
            "wgmma",
            params={"TF32": 0, "STAGES": 3},
            requires=("sm_90a", "k % 8 == 0", "n % 2 == 0"),
            shared_bytes=lambda STAGES: ring_bytes(2 * TILE_ROWS, STAGES),
            args=(
                tensor_map("A", box=(TILE_ROWS, DEPTH), swizzle=ROW_BYTES),
                tensor_map("B", box=(TILE_ROWS, DEPTH), swizzle=ROW_BYTES),
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
