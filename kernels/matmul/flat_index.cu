// Threads have one index, and each thread computes the row and column of its element of C by a division.
//
// The division is done once and costs little. If n is not a multiple of 32, a warp can have elements of two rows, and
// then loads two elements of A at a time instead of one.
//
// A block also counts its clock cycles, from its first instruction until its last thread ends. A multiprocessor runs
// several blocks at a time, so this is longer than the time of a multiprocessor divided by its number of blocks.
extern "C" __global__ void matmul_flat_index(float *C, long long *cycles, const float *A, const float *B, int m, int n,
                                             int k) {
    const long long begin = clock64();
    const int element = blockIdx.x * blockDim.x + threadIdx.x;

    if (element < m * n) {
        const int row = element / n;
        const int column = element % n;
        float sum = 0.0f;
        for (int i = 0; i < k; ++i) {
            sum += A[row * k + i] * B[i * n + column];
        }
        C[element] = sum;
    }

    __syncthreads();
    if (threadIdx.x == 0) {
        cycles[blockIdx.x] = clock64() - begin;
    }
}
