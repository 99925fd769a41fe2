// The coefficients lie in constant memory.
//
// The cache of constant memory serves one address at a time. If all threads of a warp need the same coefficient, one
// access is enough, and the units for loads and stores are not used. Here these units are not the bottleneck, so the
// kernel is only as fast as with a table in global memory. If the threads of a warp need coefficients of several
// pieces, the cache serves one piece after the other, and the warp waits for the last one.
//
// TERMS: coefficients of a piece; PIECES: how many pieces there are.
__constant__ float coefficients[PIECES * TERMS];

extern "C" __global__ void constant_memory_constant(float *y, const float *x, int n) {
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
