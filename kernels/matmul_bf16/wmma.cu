// The simplest interface to tensor cores: a warp loads fragments of 16x16 from tiles in shared memory, and multiplies
// them.
//
// One instruction makes thousands of multiply-adds, so the arithmetic no longer limits the speed. A block loads a
// tile, waits for it, multiplies, and waits again. Most of the time the tensor cores have no work.
#include "wmma.cuh"

__device__ void load(Tile &tile, const Element *from, int first_row, int first_k, int rows, int k) {
    for (int at = threadIdx.x; at < TILE * DEPTH; at += THREADS) {
        const int row = first_row + at / DEPTH;
        const int column = first_k + at % DEPTH;
        tile.of[at / DEPTH][at % DEPTH] = row < rows && column < k ? from[row * k + column] : Element(0.0f);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    matmul_wmma(float *C, const Element *A, const Element *B, int m, int n, int k) {
    __shared__ Tile a;
    __shared__ Tile b;
    const int row = blockIdx.y * TILE;
    const int column = blockIdx.x * TILE;

    WarpSums sums;
    for (int at = 0; at < k; at += DEPTH) {
        load(a, A, row, at, m, k);
        load(b, B, column, at, n, k);
        __syncthreads();
        sums.add_products(a, b);
        __syncthreads();
    }
    sums.store(C, row, column, m, n);
}
