// y = x + x^2 / 2 + x^3 / 3 + ... with TERMS terms, innermost first. Each term has its own instructions.
//
// The loop is unrolled, so the code grows with TERMS, and the assembler has more work. The benchmark measures how long
// this kernel takes to load, and not how fast it runs.
extern "C" __global__ void series(float *y, const float *x, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float sum = 0.0f;
#pragma unroll
        for (int k = TERMS; k > 0; --k) {
            sum = (sum + 1.0f / k) * x[i];
        }
        y[i] = sum;
    }
}
