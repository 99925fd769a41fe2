// As `tiled`, with a tile of C twice as wide as the block: each thread computes two of its columns, TILE apart.
//
// An element of A that a thread has loaded from shared memory now serves two multiply-adds: three loads feed two of
// them where `tiled` needs four. The columns of a thread are TILE apart and not neighbours, so that a warp still reads
// and writes full rows; the second may lie beyond C where the first does not.
//
// TILE: height of a tile, width and height of the block.
extern "C" __global__ void matmul_two_columns(float *C, const float *A, const float *B, int m, int n, int k) {
    __shared__ float a[TILE][TILE];
    __shared__ float b[TILE][2 * TILE];
    const int x = threadIdx.x;
    const int y = threadIdx.y;
    const int first = blockIdx.x * 2 * TILE + x;
    const int second = first + TILE;
    const int row = blockIdx.y * TILE + y;

    float sums[2] = {};
    for (int start = 0; start < k; start += TILE) {
        const int across = start + x;
        const int down = start + y;
        a[y][x] = row < m && across < k ? A[row * k + across] : 0.0f;
        b[y][x] = down < k && first < n ? B[down * n + first] : 0.0f;
        b[y][x + TILE] = down < k && second < n ? B[down * n + second] : 0.0f;
        __syncthreads();

        for (int i = 0; i < TILE; ++i) {
            sums[0] += a[y][i] * b[i][x];
            sums[1] += a[y][i] * b[i][x + TILE];
        }
        __syncthreads();
    }

    if (row < m && first < n) {
        C[row * n + first] = sums[0];
    }
    if (row < m && second < n) {
        C[row * n + second] = sums[1];
    }
}
