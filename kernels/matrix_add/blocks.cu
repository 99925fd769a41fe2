// Blocks of 16 x 16 threads cover the matrix, with a thread for each element.
//
// The blocks at the right and at the bottom reach outside the matrix. The `if` checks both indices, so their threads
// access neither the next row nor memory after the end. A warp is two rows of 16 threads, so it accesses two runs of
// 64 bytes, where 32 threads in a row would access one full line. Each thread moves only 4 bytes at a time.
extern "C" __global__ void matrix_add_blocks(float *C, const float *A, const float *B, int rows, int columns) {
    const int column = blockIdx.x * blockDim.x + threadIdx.x;
    const int row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row < rows && column < columns) {
        const int i = row * columns + column;
        C[i] = A[i] + B[i];
    }
}
