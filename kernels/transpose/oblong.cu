// A tile of any shape: the threads of a block are dealt anew to the turned tile, which is as wide as the tile was high.
//
// 32 x 8 reads whole lines and writes runs of 8 floats, 8 x 32 does the opposite: 8 floats are the 32 bytes that memory
// moves at least, so both move nothing in vain and differ in how well the pieces come together. A block of 1 x 2 is
// right and hopeless: 2 threads take the place of a warp of 32, and each float moves alone.
//
// WIDTH, HEIGHT: of the tile and of the block, powers of two up to 32. PAD lets the columns that a warp reads together
// lie in different banks.
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
