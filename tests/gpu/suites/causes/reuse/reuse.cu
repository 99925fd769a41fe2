// b[i] = a[i] + a[i + SHIFT] + a[i + 2 SHIFT] + ... (PASSES of them, around the end): each element is read PASSES times.
//
// SPREAD: 1 for blocks in order, so that an element is still in the L2 cache when it is read again; for an odd number
// far from 1 the blocks that run together read far from each other, and it no longer is.
extern "C" __global__ void reuse(float *b, const float *a, int n) {
    const unsigned block = (unsigned)(((unsigned long long)blockIdx.x * SPREAD) % gridDim.x);
    const int i = block * blockDim.x + threadIdx.x;
    if (i < n) {
        float sum = 0.0f;
#pragma unroll
        for (int pass = 0; pass < PASSES; ++pass) {
            const int at = i + pass * SHIFT;
            sum += a[at < n ? at : at - n];
        }
        b[i] = sum;
    }
}
