// Like `naive`, but each product is added to C in global memory, which must be zero before.
//
// C might overlap A or B, as far as the compiler knows. So it must store each sum before the next loads: one store for
// each multiply-add, and each waits for the store before it. A sum should be in a register.
extern "C" __global__ void matmul_global_sum(float *C, const float *A, const float *B, int m, int n, int k) {
    const int column = blockIdx.x * blockDim.x + threadIdx.x;
    const int row = blockIdx.y * blockDim.y + threadIdx.y;
    if (column >= n || row >= m) {
        return;
    }

    for (int i = 0; i < k; ++i) {
        C[row * n + column] += A[row * k + i] * B[i * n + column];
    }
}
