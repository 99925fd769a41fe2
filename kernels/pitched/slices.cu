// Each warp adds up one row of a volume. A slice begins `slice_pitch` elements after the slice before it, and a row
// begins `pitch` elements after the row above it.
//
// Blocks have two indices, one for the slice and one for the rows in it, so no thread divides by the number of rows.
// The padding of the rows also aligns the slices. The layouts have the same costs and gains as in rows.cu. If the
// number of rows is not a multiple of eight, the last block of each slice has warps without a row.
#include "row_sum.cuh"

extern "C" __global__ void pitched_slices(float *sums, const float *volume, int rows, int width, int pitch,
                                          int slice_pitch) {
    const int row = blockIdx.x * blockDim.y + threadIdx.y;
    const float *slice = volume + static_cast<long long>(blockIdx.y) * slice_pitch;
    if (row < rows) {
        const float sum = row_sum(slice + static_cast<long long>(row) * pitch, width);
        if (threadIdx.x == 0) {
            sums[blockIdx.y * rows + row] = sum;
        }
    }
}

extern "C" __global__ void pitched_slices_float4(float *sums, const float *volume, int rows, int width, int pitch,
                                                 int slice_pitch) {
    const int row = blockIdx.x * blockDim.y + threadIdx.y;
    const float *slice = volume + static_cast<long long>(blockIdx.y) * slice_pitch;
    if (row < rows) {
        const float sum = row_sum_float4(slice + static_cast<long long>(row) * pitch, width);
        if (threadIdx.x == 0) {
            sums[blockIdx.y * rows + row] = sum;
        }
    }
}
