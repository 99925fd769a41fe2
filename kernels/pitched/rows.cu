// A warp a row of a matrix: each row begins `pitch` elements after the one above it.
//
// In a packed matrix the pitch is the width. Where that is no whole number of 128-byte lines, most rows begin inside a
// line, and then each load of a warp touches two lines where one would do. A pitched matrix pays for padding at the end
// of its rows, and gets rows that begin with a line: loads of 4 bytes touch one line each, and loads of 16 bytes, which
// a packed row allows only where it happens to begin at such a boundary, are a quarter as many.
//
// Loads that touch two lines cost an H100 nothing that shows: the rest of a line is in the cache when the next load
// asks for it, and the memory reads no byte twice. So padding alone gains nothing here. The loads of 16 bytes do.
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
