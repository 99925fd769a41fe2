// Each thread transposes a square of 4 x 4 in a tile of such squares, and all loads and stores move a float4, in
// global memory and in shared memory.
//
// A thread starts four loads of 16 bytes, transposes its square of 4 x 4 in registers, and stores it as four float4 in
// the transposed tile in shared memory. Then whole rows of the transposed tile are written as float4. If each thread
// accesses 16 bytes, shared memory serves 8 threads at a time. These 8 threads store squares of the same four rows, or
// load neighbours of one row. The position in a row is swizzled by the number of the square, so both accesses use each
// of the 32 banks once. A larger tile makes longer runs in global memory. On an H100, 64 x 64 takes 3 % less time than
// 32 x 32, and larger tiles are not faster.
//
// Blocks with neighbouring numbers run at the same time. Here their tiles lie below one another in a, and side by side
// in b, so their writes follow one another in memory. If the reads follow one another instead, the kernel takes 1.5 %
// longer. If all accesses are marked as used only once (__ldcs, __stcs), it takes 3 % longer.
//
// WIDTH, HEIGHT: of the tile, multiples of 32; a block has one thread for each square of its tile.
#include "square.cuh"

extern "C" __global__ void transpose_float4(float *b, const float *a, int n) {
    constexpr int across = WIDTH / 4;
    constexpr int down = HEIGHT / 4;
    __shared__ float4 tile[WIDTH][down];
    const int left = blockIdx.y * WIDTH;
    const int top = blockIdx.x * HEIGHT;

    const int x = threadIdx.x % across;
    const int y = threadIdx.x / across;
    const Square square = turned(load_square(a, top + 4 * y, left + 4 * x, n));
    for (int i = 0; i < 4; ++i) {
        tile[4 * x + i][y ^ x % 8] = square.rows[i];
    }
    __syncthreads();

    const int place = threadIdx.x % down;
    for (int i = 0; i < 4; ++i) {
        const int row = i * across + threadIdx.x / down;
        store_four(b, left + row, top + 4 * place, n, tile[row][place ^ row / 4 % 8]);
    }
}
