// A tile of any shape. The transposed tile is as wide as the tile was high, so the threads of a block are numbered
// anew before they write.
//
// With 32 x 8 a warp reads whole lines and writes runs of 8 floats; with 8 x 32 it reads runs and writes whole lines.
// 8 floats are 32 bytes, the smallest amount that the memory moves. So both shapes move no byte in vain, and differ
// only in how well the memory combines the runs. A block of 1 x 2 gives the correct result very slowly: it has 2
// threads, a warp has room for 32, and each float is moved alone.
//
// WIDTH, HEIGHT: of the tile and of the block, powers of two up to 32. PAD puts the columns that a warp reads together
// into different banks.
#define PAD (32 / HEIGHT)

extern "C" __global__ void transpose_oblong(float *b, const float *a, int n) {
    __shared__ float tile[HEIGHT][WIDTH + PAD];
    const int left = blockIdx.x * WIDTH;
    const int top = blockIdx.y * HEIGHT;

    const int x = left + threadIdx.x;
    const int y = top + threadIdx.y;
    if (x < n && y < n) {
        tile[threadIdx.y][threadIdx.x] = a[y * n + x];
    }
    __syncthreads();

    const int thread = threadIdx.y * WIDTH + threadIdx.x;
    const int across = thread % HEIGHT;
    const int down = thread / HEIGHT;
    if (top + across < n && left + down < n) {
        b[(left + down) * n + top + across] = tile[across][down];
    }
}
