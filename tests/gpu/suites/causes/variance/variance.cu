// The variance of the WINDOW floats that begin at each element.
//
// TYPE: the type of the sums; with double, each float is converted first.
extern "C" __global__ void variance(float *b, const float *a, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        TYPE sum = 0, squares = 0;
#pragma unroll
        for (int k = 0; k < WINDOW; ++k) {
            const TYPE value = a[i + k];
            sum += value;
            squares += value * value;
        }
        const TYPE mean = sum * (TYPE)(1.0 / WINDOW);
        b[i] = squares * (TYPE)(1.0 / WINDOW) - mean * mean;
    }
}
