// A warp a row of a volume: a slice begins `slice_pitch` elements after the one before it, a row `pitch` after the one
// above it.
//
// Blocks have two indices, one for the slice and one for the rows within it, so no thread divides by the number of
// rows. Padded rows align the slices as well. What the layouts cost and bring is the same as in a matrix of all the
// rows; blocks at the bottom of a slice have warps to spare where eight do not divide its rows.
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
