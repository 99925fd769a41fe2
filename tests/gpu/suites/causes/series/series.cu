// Sums of independent terms; in a term, each step needs the one before.
//
// UNROLLED: terms that a thread computes side by side. With 1, nothing fills the time until a step has its result.
constexpr int AT_ONCE = UNROLLED; // macros are not replaced in a pragma

extern "C" __global__ void series(float *b, const float *a, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float first = a[i], sum = 0.0f;
#pragma unroll AT_ONCE
        for (int term = 0; term < TERMS; ++term) {
            float x = first;
#pragma unroll
            for (int step = 0; step < STEPS; ++step) {
                x -= 0.01f * x * x;
            }
            sum += x;
            first += 0.001f;
        }
        b[i] = sum;
    }
}
