// Neighbouring threads take neighbouring elements, and each thread goes on by the size of the whole grid.
//
// One load of a warp reads 128 bytes in a row, and uses all of them. Every thread still stores a sum, so the host has
// to fetch and add a quarter of a million sums.
//
// The step is a variable of type int, which makes the kernel about a quarter faster. Additions of int must not
// overflow, so the compiler can compute the number of iterations in advance, and start 16 loads of a thread before it
// uses the first. In `i += gridDim.x * BLOCK` the step is unsigned, and i may wrap around. Then the compiler does not
// know the number of iterations, and each load waits for the load before it.
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
