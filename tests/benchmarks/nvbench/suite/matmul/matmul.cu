// Each block computes one tile of C from tiles of A and B in shared memory.
//
// TILE: width and height of a tile and of the block.
extern "C" __global__ void matmul(float *C, const float *A, const float *B, int n) {
    __shared__ float a[TILE][TILE];
    __shared__ float b[TILE][TILE];
    const int column = blockIdx.x * TILE + threadIdx.x;
    const int row = blockIdx.y * TILE + threadIdx.y;
    float sum = 0.0f;
    for (int start = 0; start < n; start += TILE) {
        const int across = start + threadIdx.x;
        const int down = start + threadIdx.y;
        a[threadIdx.y][threadIdx.x] = row < n && across < n ? A[row * n + across] : 0.0f;
        b[threadIdx.y][threadIdx.x] = down < n && column < n ? B[down * n + column] : 0.0f;
        __syncthreads();
        for (int k = 0; k < TILE; ++k) {
            sum += a[threadIdx.y][k] * b[k][threadIdx.x];
        }
        __syncthreads();
    }
    if (row < n && column < n) {
        C[row * n + column] = sum;
    }
}
