// Each thread turns a square of 4 x 4 in its registers: no shared memory, no barrier, and four times fewer
// instructions.
//
// A warp covers 8 squares across and 4 down. It reads whole lines, 8 float4 side by side, and writes runs of 4 float4,
// which is half a line; the other half comes from the warp below, and the L2 cache puts the two together. So it is not
// shared memory that makes a transpose fast: on an H100 this takes 2 % longer than the tiled one. It is runs that are
// long enough. A warp that covers 32 squares across and 1 down writes single float4, half of what memory moves at
// least, and takes more than three times as long.
//
// The block is 8 threads wide.
#include "square.cuh"

extern "C" __global__ void transpose_registers(float *b, const float *a, int n) {
    const int x = 4 * (blockIdx.x * blockDim.x + threadIdx.x);
    const int y = 4 * (blockIdx.y * blockDim.y + threadIdx.y);
    const Square square = turned(load_square(a, y, x, n));
    for (int i = 0; i < 4; ++i) {
        store_four(b, x + i, y, n, square.rows[i]);
    }
}
