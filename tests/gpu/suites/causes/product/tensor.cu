// C = A B^T by the tensor cores: a warp computes 32 x 32 of C in fragments of 16 x 16, straight from global memory.
#include <cuda_bf16.h>
#include <mma.h>

using namespace nvcuda::wmma;

extern "C" __global__ void tensor(float *C, const __nv_bfloat16 *A, const __nv_bfloat16 *B, int n) {
    const int warp = threadIdx.x / 32;
    const int row = blockIdx.y * 64 + warp / 2 * 32, column = blockIdx.x * 64 + warp % 2 * 32;
    fragment<accumulator, 16, 16, 16, float> sums[2][2];
    for (auto &each : sums) {
        fill_fragment(each[0], 0.0f);
        fill_fragment(each[1], 0.0f);
    }
    for (int k = 0; k < n; k += 16) {
        fragment<matrix_a, 16, 16, 16, __nv_bfloat16, row_major> a[2];
        fragment<matrix_b, 16, 16, 16, __nv_bfloat16, col_major> b[2];
        for (int i = 0; i < 2; ++i) {
            load_matrix_sync(a[i], A + (row + 16 * i) * n + k, n);
            load_matrix_sync(b[i], B + (column + 16 * i) * n + k, n);
        }
        for (int i = 0; i < 2; ++i) {
            for (int j = 0; j < 2; ++j) {
                mma_sync(sums[i][j], a[i], b[j], sums[i][j]);
            }
        }
    }
    for (int i = 0; i < 2; ++i) {
        for (int j = 0; j < 2; ++j) {
            store_matrix_sync(C + (row + 16 * i) * n + column + 16 * j, sums[i][j], n, mem_row_major);
        }
    }
}
