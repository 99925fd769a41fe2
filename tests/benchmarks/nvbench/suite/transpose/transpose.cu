// b = a turned, for n x n floats: straight from row to column, or through a tile in shared memory.
//
// TILE: width of a block and its tile; ROWS: height of a block; PAD: unused floats in a row of the tile. Without one, a
// column of the tile lies in a single bank of shared memory.
extern "C" __global__ void transpose_naive(float *b, const float *a, int n) {
    const int x = blockIdx.x * TILE + threadIdx.x;
    const int top = blockIdx.y * TILE;
    for (int y = top + threadIdx.y; y < top + TILE; y += ROWS) {
        if (x < n && y < n) {
            b[x * n + y] = a[y * n + x];
        }
    }
}

extern "C" __global__ void transpose_tiled(float *b, const float *a, int n) {
    __shared__ float tile[TILE][TILE + PAD];
    const int left = blockIdx.x * TILE;
    const int top = blockIdx.y * TILE;
    for (int row = threadIdx.y; row < TILE; row += ROWS) {
        if (left + threadIdx.x < n && top + row < n) {
            tile[row][threadIdx.x] = a[(top + row) * n + left + threadIdx.x];
        }
    }
    __syncthreads();
    for (int row = threadIdx.y; row < TILE; row += ROWS) {
        if (top + threadIdx.x < n && left + row < n) {
            b[(left + row) * n + top + threadIdx.x] = tile[threadIdx.x][row];
        }
    }
}
