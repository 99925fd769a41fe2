// Many blocks, so that every multiprocessor has work; each thread still takes a piece of its own.
//
// The threads of a warp read at the same time, and their pieces are far apart: one load touches 32 places of the memory
// and brings 32 bytes from each, of which four are wanted now and the others only if the cache still has them later.
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
