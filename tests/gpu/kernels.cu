// What the tests of the CUDA device launch.

__constant__ float factors[4];

extern "C" __global__ void add(const float* a, const float* b, float* c, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) c[i] = a[i] + b[i];
}

extern "C" __global__ void scale(float* x, int n) {
    if (threadIdx.x < n) x[threadIdx.x] *= factors[threadIdx.x % 4];
}

// Writes its dynamic shared memory from one end and reads it from the other.
extern "C" __global__ void reverse(float* out, int n) {
    extern __shared__ float shared[];
    for (int i = threadIdx.x; i < n; i += blockDim.x) shared[i] = i;
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) out[i] = shared[n - 1 - i];
}

extern "C" __global__ void spin(long long cycles) {
    for (long long start = clock64(); clock64() - start < cycles;) {}
}

extern "C" __global__ void stray() { *reinterpret_cast<int*>(8) = 1; }

extern "C" __global__ void crooked(char* x) { *reinterpret_cast<float*>(x + 1) = 1; }

extern "C" __global__ void mixed(signed char a, double b, short c, float* out) {
    out[0] = a;
    out[1] = b;
    out[2] = c;
}

// Reads a buffer and asks the L2 cache to keep it before all else.
extern "C" __global__ void keep(const float* a, float* out, int n) {
    unsigned long long policy;
    asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
    float sum = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        float value;
        asm volatile("ld.global.L2::cache_hint.f32 %0, [%1], %2;" : "=f"(value) : "l"(a + i), "l"(policy));
        sum += value;
    }
    if (sum == 12345.0f) *out = sum;
}
