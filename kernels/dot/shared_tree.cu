// The threads of a block add their sums in shared memory. Each round halves the number of sums.
//
// 256 threads need eight rounds. Each round has a barrier for the whole block, and half as many threads work as in the
// round before. There is one atomic addition for each block.
//
// BLOCK: threads of a block, a power of two.
extern "C" __global__ void dot_shared_tree(float *sum, const float *a, const float *b, int n) {
    __shared__ float sums[BLOCK];

    float mine = 0.0f;
    const int stride = gridDim.x * BLOCK;
    for (int i = blockIdx.x * BLOCK + threadIdx.x; i < n; i += stride) {
        mine += a[i] * b[i];
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
        atomicAdd(sum, sums[0]);
    }
}
