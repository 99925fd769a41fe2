// Like `tiled`, but a tile of C is twice as wide as the block, so each thread computes two columns.
//
// Each element of A that a thread loads from shared memory is used in two multiply-adds. So three loads feed two
// multiply-adds, where `tiled` needs four loads. The two columns of a thread are TILE apart and not neighbours, so a
// warp still reads and writes full rows. At the right edge, the second column can lie outside C while the first lies
// inside.
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
