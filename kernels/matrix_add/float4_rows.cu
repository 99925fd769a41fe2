// Each warp adds 128 neighbouring elements of a row, four a thread, with 16-byte loads and stores.
//
// A quarter of the memory instructions move the same bytes, and a warp's are four full lines in a row. Where the number
// of columns is no multiple of 4, rows begin between 16-byte boundaries, in all three matrices alike: the first four
// elements of a row are counted from the boundary before it, and where they or the last four reach beyond the row, what
// belongs to the row is added one by one.
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
