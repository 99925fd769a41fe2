typedef float real;  // the broken suites pass arrays of several types

extern "C" __global__ void scale(real *y, const real *x, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        y[i] = 2 * x[i];
    }
}
