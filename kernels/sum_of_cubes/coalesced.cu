// Neighbouring threads take neighbouring elements, and all of them step over the whole grid at once.
//
// One load of a warp is now one stretch of 128 bytes, all of which it wants. Every thread still leaves a sum, and the
// host has a quarter of a million of them to fetch and add.
//
// BLOCK: threads of a block.
extern "C" __global__ void cubes_coalesced(unsigned int *partials, const unsigned int *a, int n) {
    const int threads = gridDim.x * BLOCK;
    const int thread = blockIdx.x * BLOCK + threadIdx.x;

    unsigned int mine = 0;
    for (int i = thread; i < n; i += threads) {
        mine += a[i] * a[i] * a[i];
    }
    partials[thread] = mine;
}
