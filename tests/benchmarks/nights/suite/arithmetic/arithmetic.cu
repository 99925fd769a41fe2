// With RECODED there is a store more, which never happens: other code, and just as fast.
#define NEVER(n) (RECODED && (n) < 0)

extern "C" __global__ void halving(float* y, const float* x, int n) {
    int i = blockIdx.x * BLOCK + threadIdx.x;
    if (i >= n) return;
    float half = 0.5f * x[i], z = 1.0f;
#pragma unroll 20
    for (int r = 0; r < REPEAT; ++r) z = 0.5f * z + half;
    y[i] = z;
    if (NEVER(n)) y[0] = 0.0f;
}

extern "C" __global__ void four_chains(float* y, const float* x, int n) {
    int i = blockIdx.x * BLOCK + threadIdx.x;
    if (i >= n) return;
    float half = 0.5f * x[i], s = 1.0f, t = 2.0f, u = 3.0f, v = 4.0f;
#pragma unroll 10
    for (int r = 0; r < REPEAT; ++r) {
        s = 0.5f * s + half;
        t = 0.5f * t + half;
        u = 0.5f * u + half;
        v = 0.5f * v + half;
    }
    y[i] = 0.25f * ((s + t) + (u + v));
    if (NEVER(n)) y[0] = 0.0f;
}

extern "C" __global__ void roots(float* y, const float* x, int n) {
    int i = blockIdx.x * BLOCK + threadIdx.x;
    if (i >= n) return;
    float a = x[i], z = 1.0f;
    for (int r = 0; r < REPEAT; ++r) z = sqrtf(z * a);
    y[i] = z;
    if (NEVER(n)) y[0] = 0.0f;
}

extern "C" __global__ void newton(float* y, const float* x, int n) {
    int i = blockIdx.x * BLOCK + threadIdx.x;
    if (i >= n) return;
    float a = x[i], square = a * a, z = 1.0f;
    for (int r = 0; r < REPEAT; ++r) z = 0.5f * (z + square / z);
    y[i] = z;
    if (NEVER(n)) y[0] = 0.0f;
}

extern "C" __global__ void in_shared(float* y, const float* x, int n) {
    __shared__ volatile float z[BLOCK];
    int i = blockIdx.x * BLOCK + threadIdx.x;
    if (i >= n) return;
    float half = 0.5f * x[i];
    z[threadIdx.x] = 1.0f;
    for (int r = 0; r < REPEAT; ++r) z[threadIdx.x] = 0.5f * z[threadIdx.x] + half;
    y[i] = z[threadIdx.x];
    if (NEVER(n)) y[0] = 0.0f;
}
