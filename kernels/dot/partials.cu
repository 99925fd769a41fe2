// Each block stores its sum in a place of its own, and the host adds up those few in float64.
//
// Without atomics the blocks are always added in the same order, so the result is the same, to the last bit, each time.
// What the host does is no part of the kernel's time.
//
// BLOCK: threads of a block, a power of two.
extern "C" __global__ void dot_partials(float *partials, const float *a, const float *b, int n) {
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
        partials[blockIdx.x] = sums[0];
    }
}
