// Each block stores its own sum, and the host adds these few sums in float64.
//
// Without atomic additions, the sums are always added in the same order, so each launch gives the same result to the
// last bit. The work of the host is not part of the kernel's time.
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
