// Many blocks, so that every multiprocessor has work. Each thread still adds a contiguous piece of the array.
//
// The threads of a warp read at the same time, and their pieces are far apart. So one load of a warp reads 32 bytes at
// each of 32 addresses. Each thread uses four of its 32 bytes now. It can use the other bytes later only if they are
// still in the cache.
//
// BLOCK: threads of a block.
extern "C" __global__ void cubes_many_blocks(unsigned int *partials, const unsigned int *a, int n) {
    const int threads = gridDim.x * BLOCK;
    const int thread = blockIdx.x * BLOCK + threadIdx.x;
    const int piece = (n + threads - 1) / threads;
    const int first = thread * piece;
    const int end = min(first + piece, n);

    unsigned int mine = 0;
    for (int i = first; i < end; ++i) {
        mine += a[i] * a[i] * a[i];
    }
    partials[thread] = mine;
}
