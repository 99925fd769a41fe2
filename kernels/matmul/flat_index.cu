// Threads are numbered straight through, and each finds the row and column of its element of C by a division.
//
// The division is done once and costs little. Where n is no multiple of 32, a warp has elements of two rows, and
// fetches two elements of A at a time instead of one.
//
// A block also counts the cycles it takes, from its first instruction until its last thread is done. An SM works on
// several blocks at a time, so that a block takes longer than an SM needs for one.
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
