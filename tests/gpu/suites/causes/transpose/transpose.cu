// b = transpose of a, n x n floats: through a tile in shared memory, or element by element.
//
// PAD: unused floats in a row of the tile; with 0, a column of 32 floats lies in one single bank.
#define TILE 32
#define ROWS 8

extern "C" __global__ void tiled(float *b, const float *a, int n) {
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

// Reads along rows and writes along columns: each of a warp's 32 elements in a sector of its own.
extern "C" __global__ void naive(float *b, const float *a, int n) {
    const int x = blockIdx.x * TILE + threadIdx.x;
    for (int row = threadIdx.y; row < TILE; row += ROWS) {
        const int y = blockIdx.y * TILE + row;
        if (x < n && y < n) {
            b[x * n + y] = a[y * n + x];
        }
    }
}
