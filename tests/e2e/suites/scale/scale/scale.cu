// out[i] = 2 a[i]; REPEAT does the same work again, for tests that need a slower kernel.
#ifndef REPEAT
#define REPEAT 1
#endif

extern "C" __global__ void scale(float* out, const float* a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        for (int r = 0; r < REPEAT; ++r) {
            float volatile x = a[i];
            out[i] = 2.0f * x;
        }
}
