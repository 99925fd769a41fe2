// A second kernel, with a single block, adds the sums that the first kernel (partials.cu) stored.
//
// The whole result is computed on the device, and each launch gives the same result to the last bit. The cost is a
// second launch. It begins only after the last block of the first kernel has ended, and the memory is almost idle for
// some microseconds.
//
// BLOCK: threads of the block, a power of two.
extern "C" __global__ void dot_total(float *sum, const float *partials, int count) {
    __shared__ float sums[BLOCK];

    float mine = 0.0f;
    for (int i = threadIdx.x; i < count; i += BLOCK) {
        mine += partials[i];
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
        *sum = sums[0];
    }
}
