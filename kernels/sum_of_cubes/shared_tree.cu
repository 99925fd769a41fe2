// The threads of a block add up their sums in shared memory, half as many of them in each round; one sum a block is
// left.
//
// The kernel reads as fast as before; what it spares is the writing of a sum for every thread, and the host's work.
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
