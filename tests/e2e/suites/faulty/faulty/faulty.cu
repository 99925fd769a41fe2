// Kernels that fail on purpose, each in one way.

extern "C" __global__ void copy(float* out, const float* a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = a[i];
}

extern "C" __global__ void endless(float* out, const float* a, int n) {
    volatile const float* watched = a;
    while (watched[0] == a[0]) out[0] = a[0];
}

// Writes ten elements past its output.
extern "C" __global__ void overrun(float* out, const float* a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = a[i];
    if (i < 10) out[n + i] = 1.0f;
}

extern "C" __global__ void wrong(float* out, const float* a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = i == 77 ? a[i] + 1.0f : a[i];
}
