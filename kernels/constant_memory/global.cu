// The coefficients lie in global memory.
//
// Each coefficient is one more load for each element, through the same caches and units as the elements. The table is
// one 128-byte line. After the first access of a block, the line comes from the L1 cache, which serves all threads of
// a warp at once, whichever pieces they need. So on an H100 the time is the same for both kinds of index, and is not
// longer than the best time of `constant`.
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
