// The coefficients lie in global memory.
//
// Each is one more load for every element, through the same caches and units as the values themselves. The table is one
// 128-byte line: after a block's first touch it comes from the L1 cache, in one piece however the threads of a warp are
// spread over its pieces. So it takes an H100 the same time for any index, and no longer than constant memory takes at
// its best.
//
// TERMS: coefficients of a piece; PIECES: how many pieces there are.
extern "C" __global__ void constant_memory_global(float *y, const float *x, const float *coefficients, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) {
        return;
    }
    const float place = x[i] * PIECES;
    const int piece = static_cast<int>(place);
    const float t = place - piece;

    float sum = 0.0f;
#pragma unroll
    for (int k = TERMS - 1; k >= 0; --k) {
        sum = sum * t + coefficients[piece * TERMS + k];
    }
    y[i] = sum;
}
