// Each warp adds up one row of a matrix. A row begins `pitch` elements after the row above it.
//
// In a packed matrix the pitch is the width. If the width is not a multiple of 128 bytes, most rows begin inside a
// line, and each load of a warp touches two lines instead of one. In a pitched matrix, padding at the end of each row
// makes every row begin at a line. Then a load of 4 bytes for each thread touches one line, and loads of 16 bytes are
// possible, so a quarter of the loads is enough.
//
// Loads that touch two lines cost an H100 no measurable time: the rest of a line is still in the cache at the next
// load, so no byte is read from memory twice. So padding alone gains nothing here. The loads of 16 bytes do.
#include "row_sum.cuh"

extern "C" __global__ void pitched_rows(float *sums, const float *matrix, int rows, int width, int pitch) {
    const int row = blockIdx.x * blockDim.y + threadIdx.y;
    if (row < rows) {
        const float sum = row_sum(matrix + static_cast<long long>(row) * pitch, width);
        if (threadIdx.x == 0) {
            sums[row] = sum;
        }
    }
}

extern "C" __global__ void pitched_rows_float4(float *sums, const float *matrix, int rows, int width, int pitch) {
    const int row = blockIdx.x * blockDim.y + threadIdx.y;
    if (row < rows) {
        const float sum = row_sum_float4(matrix + static_cast<long long>(row) * pitch, width);
        if (threadIdx.x == 0) {
            sums[row] = sum;
        }
    }
}
