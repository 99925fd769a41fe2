// y = 1 / sqrt(x) by Newton's method, v <- v (1.5 - 0.5 x v v), in many more steps than it needs.
//
// Five steps would do. STEPS is such that on an H100 the kernel takes about as long as the copy of its input: then there
// is as much to hide as there is to hide it behind. Each thread has one element and keeps it in registers, so that the
// kernel leaves the memory to the copies that go on beside it.
extern "C" __global__ void inverse_root(float *y, const float *x, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        const float half = 0.5f * x[i];
        float v = 0.5f;
#pragma unroll 16
        for (int step = 0; step < STEPS; ++step) {
            v *= 1.5f - half * v * v;
        }
        y[i] = v;
    }
}
