// A tile of squares: float4 all the way, from memory to registers, through shared memory, and back to memory.
//
// Each thread has four loads of 16 bytes under way, turns its square of 4 x 4 in registers and stores it as float4 in
// the turned tile; then whole rows of that go out as float4. Shared memory serves 8 threads at a time when each wants
// 16 bytes. Those 8 store squares of the same four rows, or load neighbours of one row; with the place in a row
// swizzled by the number of its square, both take each of the 32 banks once. The larger the tile, the longer the runs
// in memory: on an H100, 64 x 64 takes 3 % less time than 32 x 32, and what is larger still takes no less.
//
// Blocks with neighbouring numbers run at the same time. Here they lie below one another in a and beside one another in
// b, so that it is the writes that follow one another in memory. With the reads in order and the writes apart it takes
// 1.5 % longer; with all of them marked as used only once (__ldcs, __stcs), 3 %.
//
// WIDTH, HEIGHT: of the tile, multiples of 32; a block has a thread for each of its squares.
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
