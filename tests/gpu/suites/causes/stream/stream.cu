// b = 3 a: once in order; once with the threads of a warp far from each other; once with twice the bytes.

extern "C" __global__ void coalesced(float *b, const float *a, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        b[i] = 3.0f * a[i];
    }
}

// A thread takes a row of STRIDE elements, so that its warp touches 32 rows at a time.
extern "C" __global__ void strided(float *b, const float *a, int n) {
    const int first = (blockIdx.x * blockDim.x + threadIdx.x) * STRIDE;
    for (int i = first; i < first + STRIDE && i < n; ++i) {
        b[i] = 3.0f * a[i];
    }
}

// Reads a second array that changes nothing and writes a second one that is never read.
extern "C" __global__ void doubled(float *b, float *copy, const float *a, const float *none, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        const float value = 3.0f * a[i] + 0.0f * none[i];
        b[i] = value;
        copy[i] = value;
    }
}

// The same as `coalesced`, in other words.
extern "C" __global__ void renamed(float *b, const float *a, int n) {
    for (int at = threadIdx.x + blockIdx.x * blockDim.x; at < n; at += gridDim.x * blockDim.x) {
        const float value = a[at];
        b[at] = value * 3.0f;
    }
}
