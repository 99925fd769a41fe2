// Each block computes one tile of C from tiles of A and B, which it copies to shared memory once for all its threads.
//
// C and A are the rows of one GPU. B may be on another GPU: then each of its tiles comes over the link.
//
// TILE: width and height of a tile and of the block.
extern "C" __global__ void matmul_split(float *C, const float *A, const float *B, int rows, int n, int k) {
    __shared__ float a[TILE][TILE];
    __shared__ float b[TILE][TILE];
    const int column = blockIdx.x * TILE + threadIdx.x;
    const int row = blockIdx.y * TILE + threadIdx.y;

    float sum = 0.0f;
    for (int start = 0; start < k; start += TILE) {
        const int across = start + threadIdx.x;
        const int down = start + threadIdx.y;
        a[threadIdx.y][threadIdx.x] = row < rows && across < k ? A[row * k + across] : 0.0f;
        b[threadIdx.y][threadIdx.x] = down < k && column < n ? B[down * n + column] : 0.0f;
        __syncthreads();

        for (int i = 0; i < TILE; ++i) {
            sum += a[threadIdx.y][i] * b[i][threadIdx.x];
        }
        __syncthreads();
    }

    if (row < rows && column < n) {
        C[row * n + column] = sum;
    }
}
