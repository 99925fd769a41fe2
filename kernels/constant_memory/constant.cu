// The coefficients lie in constant memory.
//
// Its cache hands one word at a time to the threads of a warp. Where all ask for the same coefficient, one turn serves
// them, beside the units that load and store. As those have time to spare here, that is no faster than a table in
// global memory, only as fast. Where they are spread over several pieces, each piece takes a turn of its own, and the
// warp waits for the last.
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
