// Each thread computes one element of C from a row of A and a column of B, which it reads from global memory.
//
// Each multiply-add needs two loads. The caches serve most of them, but the load units limit the speed long before the
// arithmetic does. The other variants try to be faster than this one.
extern "C" __global__ void matmul_naive(float *C, const float *A, const float *B, int m, int n, int k) {
    const int column = blockIdx.x * blockDim.x + threadIdx.x;
    const int row = blockIdx.y * blockDim.y + threadIdx.y;
    if (column >= n || row >= m) {
        return;
    }

    float sum = 0.0f;
    for (int i = 0; i < k; ++i) {
        sum += A[row * k + i] * B[i * n + column];
    }
    C[row * n + column] = sum;
}
