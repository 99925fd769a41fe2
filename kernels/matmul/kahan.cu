// Like `tiled`, with compensated sums (Kahan): the rounding error of each addition is kept, and added with the next
// product.
//
// The error of a plain sum grows with the number of additions. The error of a compensated sum stays near the rounding
// error of the result. Each addition takes four operations that wait for one another, where `tiled` takes one. The
// compiler must not simplify them: in exact arithmetic the correction is zero. Some compilers simplify them with
// options such as -ffast-math.
//
// TILE: width and height of a tile and of the block.
extern "C" __global__ void matmul_kahan(float *C, const float *A, const float *B, int m, int n, int k) {
    __shared__ float a[TILE][TILE];
    __shared__ float b[TILE][TILE];
    const int column = blockIdx.x * TILE + threadIdx.x;
    const int row = blockIdx.y * TILE + threadIdx.y;

    float sum = 0.0f;
    float excess = 0.0f;  // by how much the sum is too large
    for (int start = 0; start < k; start += TILE) {
        const int across = start + threadIdx.x;
        const int down = start + threadIdx.y;
        a[threadIdx.y][threadIdx.x] = row < m && across < k ? A[row * k + across] : 0.0f;
        b[threadIdx.y][threadIdx.x] = down < k && column < n ? B[down * n + column] : 0.0f;
        __syncthreads();

        for (int i = 0; i < TILE; ++i) {
            const float product = a[threadIdx.y][i] * b[i][threadIdx.x] - excess;
            const float next = sum + product;
            excess = (next - sum) - product;
            sum = next;
        }
        __syncthreads();
    }

    if (row < m && column < n) {
        C[row * n + column] = sum;
    }
}
