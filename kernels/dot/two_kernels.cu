// A second kernel adds up the partial sums that the first one (partials.cu) has left, with a single block.
//
// The result is complete on the device and the same, to the last bit, each time. The price is a second launch: it can
// only begin when the last block of the first has ended, some microseconds in which hardly anything moves.
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
