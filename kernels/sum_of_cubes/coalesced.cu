// Neighbouring threads take neighbouring elements, and all of them step over the whole grid at once.
//
// One load of a warp is now one stretch of 128 bytes, all of which it wants. Every thread still leaves a sum, and the
// host has a quarter of a million of them to fetch and add.
//
// That the step is an int of its own is worth a quarter of the time. Adding an int must not overflow, so the compiler
// can count the rounds beforehand, and has 16 loads of a thread under way together. In i += gridDim.x * BLOCK the step
// is unsigned and i may wrap around: nothing can be counted, and each load waits for the one before it.
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
