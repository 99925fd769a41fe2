// C = A B^T by multiply-adds: a thread computes an element of C from tiles of 16 x 16 in shared memory.
#define TILE 16

__device__ float widened(unsigned short bits) { return __uint_as_float((unsigned)bits << 16); }

extern "C" __global__ void fma_tiles(float *C, const unsigned short *A, const unsigned short *B, int n) {
    __shared__ float a[TILE][TILE + 1], b[TILE][TILE + 1];
    const int row = blockIdx.y * TILE + threadIdx.y, column = blockIdx.x * TILE + threadIdx.x;
    float sum = 0.0f;
    for (int k = 0; k < n; k += TILE) {
        a[threadIdx.y][threadIdx.x] = widened(A[row * n + k + threadIdx.x]);
        b[threadIdx.y][threadIdx.x] = widened(B[(blockIdx.x * TILE + threadIdx.y) * n + k + threadIdx.x]);
        __syncthreads();
        for (int i = 0; i < TILE; ++i) {
            sum += a[threadIdx.y][i] * b[threadIdx.x][i];
        }
        __syncthreads();
    }
    C[row * n + column] = sum;
}
