// Each warp adds 128 neighbouring elements of a row. Each thread adds four of them, with 16-byte loads and stores.
//
// A quarter of the memory instructions moves the same bytes, and each instruction of a warp accesses four full lines
// in a row. If the number of columns is not a multiple of 4, rows can begin between 16-byte boundaries, at the same
// offset in all three matrices. Then the groups of four elements are counted from the last boundary before the row. If
// the first or last group reaches outside the row, its elements inside the row are added one by one.
extern "C" __global__ void matrix_add_float4_rows(float *C, const float *A, const float *B, int rows, int columns) {
    const int row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= rows) {
        return;
    }
    const int begin = row * columns;
    const int end = begin + columns;
    const int first = (begin / 4 + blockIdx.x * blockDim.x + threadIdx.x) * 4;

    if (first >= begin && first + 4 <= end) {
        const float4 x = reinterpret_cast<const float4 *>(A)[first / 4];
        const float4 y = reinterpret_cast<const float4 *>(B)[first / 4];
        reinterpret_cast<float4 *>(C)[first / 4] = make_float4(x.x + y.x, x.y + y.y, x.z + y.z, x.w + y.w);
    } else {
        for (int i = max(first, begin); i < min(first + 4, end); ++i) {
            C[i] = A[i] + B[i];
        }
    }
}
