// Each thread transposes a square of 4 x 4 in its registers: no shared memory, no barrier, and a quarter of the
// instructions.
//
// A warp covers 8 squares across and 4 down. It reads whole lines, which are 8 neighbouring float4. It writes runs of
// 4 float4, which are half a line. Another warp writes the other half, and the L2 cache combines both. On an H100 this
// kernel takes only 2 % longer than `tiled`. So the fast kernels need long runs in memory, and not shared memory. With
// a warp that covers 32 squares across and 1 down, each write is a single float4, half of the smallest amount that the
// memory moves. Then the kernel takes more than three times as long.
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
