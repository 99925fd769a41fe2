// Elements that swing towards 0: each step needs the sine of a small angle, by a series or by the special function unit.
__device__ float sine(float x) {
#if SPECIAL
    return __sinf(x);
#else
    return x * (1.0f - x * x * (1.0f / 6.0f));
#endif
}

extern "C" __global__ void waves(float *b, const float *a, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float x = a[i];
#pragma unroll 8
        for (int step = 0; step < STEPS; ++step) {
            x -= 0.01f * sine(x);
        }
        b[i] = x;
    }
}
