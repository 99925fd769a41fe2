// Each block stores its share of the dot product in a place of its own: no atomics, the same bits each time.
//
// BLOCK: threads of a block, a power of two.
extern "C" __global__ void dot(float *sums_of_blocks, const float *a, const float *b, int n) {
    __shared__ float sums[BLOCK];
    float mine = 0.0f;
    for (int i = blockIdx.x * BLOCK + threadIdx.x; i < n; i += gridDim.x * BLOCK) {
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
        sums_of_blocks[blockIdx.x] = sums[0];
    }
}
