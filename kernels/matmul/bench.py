"""C = A B for an m x k matrix A and a k x n matrix B of floats in row-major order.

Each element is used many times. The variants differ in how often they load it, and from which memory.
"""

import functools

import numpy as np

from perfsvc.suite import Benchmark, Tolerance, Variant, Work, ceil_div, launch, memset, metric, output, scratch

SMS = 132  # multiprocessors of an H100 or H200


def inputs(rng, m, n, k):
    return {
        "A": rng.uniform(-1.0, 1.0, (m, k)).astype("float32"),
        "B": rng.uniform(-1.0, 1.0, (k, n)).astype("float32"),
    }


@functools.cache
def cublas_handle():
    """Return the handle of the process; creating one takes longer than any product here."""
    from nvmath.bindings import cublas

    return cublas.create()


def with_cublas(arrays, stream):
    """Call cuBLAS in single precision: COMPUTE_32F, unlike COMPUTE_32F_FAST_TF32, rounds no input.

    cuBLAS has its matrices by columns, so that it takes each of ours for its transpose: C^T = B^T A^T.
    """
    from nvmath import CudaDataType
    from nvmath.bindings import cublas

    a, b, c = (arrays[name].__cuda_array_interface__["data"][0] for name in "ABC")
    (m, k), (_, n) = arrays["A"].shape, arrays["B"].shape
    one, zero = np.float32([1]), np.float32([0])
    handle = cublas_handle()
    cublas.set_stream(handle, stream)
    cublas.gemm_ex(
        *(handle, cublas.Operation.N, cublas.Operation.N, n, m, k),
        *(one.ctypes.data, b, CudaDataType.CUDA_R_32F, n, a, CudaDataType.CUDA_R_32F, k),
        *(zero.ctypes.data, c, CudaDataType.CUDA_R_32F, n),
        *(cublas.ComputeType.COMPUTE_32F, cublas.GemmAlgo.DFALT),
    )


def small(m, n, k):
    """Return whether a slow variant takes at most a few milliseconds for this size."""
    return m * n * k <= 1024**3


def by_32_and_8(m, n):
    return ceil_div(n, 32), ceil_div(m, 8)


def by_tiles(m, n, TILE):
    return ceil_div(n, TILE), ceil_div(m, TILE)


def tile_height(m, n):
    """Return the height of a tile: 128, or 64 if C has fewer tiles of height 128 than there are multiprocessors."""
    return 128 if ceil_div(m, 128) * ceil_div(n, 128) >= SMS else 64


INPUTS = ("A", "B", "m", "n", "k")
TILES = (8, 16, 32)

benchmark = Benchmark(
    points=[{"m": n, "n": n, "k": n} for n in (1024, 4096)],
    smoke={"m": 131, "n": 139, "k": 67},
    inputs=inputs,
    outputs={"C": output("float32", lambda m, n: (m, n))},
    reference=lambda A, B: A @ B,
    # The rounding error of k additions grows with sqrt(k). At k=4096 it is about 1e-6 of a typical element, and at most
    # about ten times as much. A missing product would be an error of 1 / sqrt(k), which is 2e-2.
    tolerance=Tolerance(max=3e-5, mean=3e-6),
    work=lambda m, n, k: Work(read_bytes=4 * k * (m + n), written_bytes=4 * m * n, flops=2 * m * n * k),
    relative_to="cublas",
    variants=[
        Variant(
            "flat_index",
            source="flat_index.cu",
            params={"BLOCK": 256},
            scratch={"cycles": scratch("int64", lambda m, n, BLOCK: ceil_div(m * n, BLOCK))},
            steps=[
                launch(
                    entry="matmul_flat_index",
                    grid=lambda m, n, BLOCK: ceil_div(m * n, BLOCK),
                    block=lambda BLOCK: BLOCK,
                    args=("C", "cycles", *INPUTS),
                ),
                metric("block_cycles", "mean", "cycles"),
            ],
            only=small,
        ),
        Variant("naive", source="naive.cu", entry="matmul_naive", grid=by_32_and_8, block=(32, 8), args=("C", *INPUTS)),
        Variant(
            "global_sum",
            source="global_sum.cu",
            steps=[
                memset("C"),
                launch(entry="matmul_global_sum", grid=by_32_and_8, block=(32, 8), args=("C", *INPUTS)),
            ],
            only=small,
        ),
        Variant(
            "tiled",
            source="tiled.cu",
            entry="matmul_tiled",
            params={"TILE": TILES},
            grid=by_tiles,
            block=lambda TILE: (TILE, TILE),
            args=("C", *INPUTS),
            only=lambda m, n, k, TILE: small(m, n, k) or TILE in TILES[2:],
        ),
        Variant(
            "two_columns",
            source="two_columns.cu",
            entry="matmul_two_columns",
            params={"TILE": 16},
            grid=lambda m, n, TILE: (ceil_div(n, 2 * TILE), ceil_div(m, TILE)),
            block=lambda TILE: (TILE, TILE),
            args=("C", *INPUTS),
            only=small,
        ),
        Variant(
            "submatrix",
            source="submatrix.cu",
            entry="matmul_submatrix",
            params={"TILE": 32},
            grid=by_tiles,
            block=lambda TILE: (TILE, TILE),
            args=("C", *INPUTS),
            only=small,
        ),
        Variant(
            "kahan",
            source="kahan.cu",
            entry="matmul_kahan",
            params={"TILE": 32},
            grid=by_tiles,
            block=lambda TILE: (TILE, TILE),
            args=("C", *INPUTS),
            only=small,
        ),
        Variant(
            "registers",
            source="registers.cu",
            entry="matmul_registers",
            grid=lambda m, n: (ceil_div(n, 128), ceil_div(m, 128)),
            block=256,
            args=("C", *INPUTS),
        ),
        Variant(
            "pipelined",
            source="pipelined.cu",
            entry="matmul_pipelined",
            params={
                "TILE_M": tile_height,
                "TILE_N": 128,
                "WARP_N": 32,
                "DEPTH": 16,
                "STAGES": 4,
                "WIDTH": lambda n: 4 if n % 4 == 0 else 1,
            },
            grid=lambda m, n, TILE_M, TILE_N: (ceil_div(n, TILE_N), ceil_div(m, TILE_M)),
            block=lambda TILE_M, TILE_N, WARP_N: 32 * (TILE_M // 64) * (TILE_N // WARP_N),
            shared_bytes=lambda TILE_M, TILE_N, DEPTH, STAGES: 4 * STAGES * DEPTH * (TILE_M + 4 + TILE_N),
            args=("C", *INPUTS),
        ),
        Variant("cublas", run=with_cublas, requires=("cuda", "import nvmath")),
    ],
)
