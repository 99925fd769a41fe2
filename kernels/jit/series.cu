// y = x + x^2 / 2 + x^3 / 3 + ... with TERMS terms, innermost first, every one of them an instruction of its own.
//
// Unrolled as it is, the code grows with TERMS, and with it what the assembler has to do: this kernel is made to be
// compiled and loaded, and not to be fast.
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
