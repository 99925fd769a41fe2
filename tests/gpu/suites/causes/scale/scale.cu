// Each thread computes a factor in STEPS steps, TIMES times, then multiplies elements STRIDE apart from its
// neighbours' elements.
extern "C" __global__ void factor_and_scale(float *b, const float *a, int n) {
    float factor = a[0];
#pragma unroll 1
    for (int time = 0; time < TIMES; ++time) {
        factor = a[0] + 0.0f * factor;
#pragma unroll 1
        for (int step = 0; step < STEPS; ++step) {
            factor -= 0.01f * factor * factor;
        }
    }
    const int rows = n / STRIDE;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        const int at = i % rows * STRIDE + i / rows;
        b[at] = factor * a[at];
    }
}
