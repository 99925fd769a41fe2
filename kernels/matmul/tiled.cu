// Each block computes one tile of C from tiles of A and B, which it copies to shared memory once for all its threads.
//
// Each element is loaded from global memory TILE times less often. A larger tile needs fewer loads, but more shared
// memory and a larger block, of which fewer fit on a multiprocessor. With a small tile, there is little to multiply
// between two barriers: with TILE = 8, an H100 is slower than with `naive`, because the caches serve the loads of
// `naive` as well.
//
// TILE: width and height of a tile and of the block.
extern "C" __global__ void matmul_tiled(float *C, const float *A, const float *B, int m, int n, int k) {
    __shared__ float a[TILE][TILE];
    __shared__ float b[TILE][TILE];
    const int column = blockIdx.x * TILE + threadIdx.x;
    const int row = blockIdx.y * TILE + threadIdx.y;

    float sum = 0.0f;
    for (int start = 0; start < k; start += TILE) {
        const int across = start + threadIdx.x;
        const int down = start + threadIdx.y;
        a[threadIdx.y][threadIdx.x] = row < m && across < k ? A[row * k + across] : 0.0f;
        b[threadIdx.y][threadIdx.x] = down < k && column < n ? B[down * n + column] : 0.0f;
        __syncthreads();

        for (int i = 0; i < TILE; ++i) {
            sum += a[threadIdx.y][i] * b[i][threadIdx.x];
        }
        __syncthreads();
    }

    if (row < m && column < n) {
        C[row * n + column] = sum;
    }
}
