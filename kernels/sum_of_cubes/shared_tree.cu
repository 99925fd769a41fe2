// The threads of a block add their sums in shared memory. Each round halves the number of sums, until the block has
// one.
//
// The kernel reads as fast as `coalesced`. It saves writing a sum for every thread, and the host adds fewer sums.
//
// BLOCK: threads of a block, a power of two.
extern "C" __global__ void cubes_shared_tree(unsigned int *partials, const unsigned int *a, int n) {
    __shared__ unsigned int sums[BLOCK];

    const int threads = gridDim.x * BLOCK;

    unsigned int mine = 0;
    for (int i = blockIdx.x * BLOCK + threadIdx.x; i < n; i += threads) {
        mine += a[i] * a[i] * a[i];
    }
    sums[threadIdx.x] = mine;
    __syncthreads();

    for (int half = BLOCK / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) {
            sums[threadIdx.x] += sums[threadIdx.x + half];
        }
        __syncthreads();
    }

    if (threadIdx.x == 0) {
        partials[blockIdx.x] = sums[0];
    }
}
