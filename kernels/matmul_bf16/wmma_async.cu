// While the warps multiply one pair of tiles, the next pair is copied. cp.async copies from global to shared memory
// without registers, and a thread waits for its copies only when it needs them.
//
// Each copy moves 16 bytes, so rows have to start at multiples of 16 bytes. Outside the matrices a copy writes zeros.
#include "wmma.cuh"

#include <cuda_pipeline.h>

__device__ void start_loading(Tile &tile, const Element *from, int first_row, int first_k, int rows, int k) {
    for (int at = threadIdx.x; at < TILE * DEPTH / VECTOR; at += THREADS) {
        const int y = at / (DEPTH / VECTOR);
        const int x = at % (DEPTH / VECTOR) * VECTOR;
        const bool inside = first_row + y < rows && first_k + x < k;
        const Element *source = inside ? &from[(first_row + y) * k + first_k + x] : from;
        __pipeline_memcpy_async(&tile.of[y][x], source, 16, inside ? 0 : 16);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    matmul_wmma_async(float *C, const Element *A, const Element *B, int m, int n, int k) {
    __shared__ Tile a[2];
    __shared__ Tile b[2];
    const int row = blockIdx.y * TILE;
    const int column = blockIdx.x * TILE;

    start_loading(a[0], A, row, 0, m, k);
    start_loading(b[0], B, column, 0, n, k);
    __pipeline_commit();

    WarpSums sums;
    int now = 0;
    for (int at = 0; at < k; at += DEPTH) {
        __pipeline_wait_prior(0);
        __syncthreads();  // tiles `now` have arrived, and no warp reads the other tiles any more
        if (at + DEPTH < k) {
            start_loading(a[1 - now], A, row, at + DEPTH, m, k);
            start_loading(b[1 - now], B, column, at + DEPTH, n, k);
            __pipeline_commit();
        }
        sums.add_products(a[now], b[now]);
        now = 1 - now;
    }
    sums.store(C, row, column, m, n);
}
