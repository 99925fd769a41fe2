// Kernels that end the context, or that the driver does not launch.

extern "C" __global__ void copy(float* out, const float* a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = a[i];
}

extern "C" __global__ void stray(float* out, const float* a, int n) {
    out[(1LL << 40) + threadIdx.x] = a[0];
}

extern "C" __global__ void crooked(float* out, const float* a, int n) {
    *reinterpret_cast<float4*>(out + 1) = make_float4(a[0], a[1], a[2], a[3]);
}

extern "C" __global__ void trap(float* out, const float* a, int n) {
    __trap();
}

// 1024 threads of more registers than a block of 1024 can have.
extern "C" __global__ void __launch_bounds__(256) crowded(float* out, const float* a, int n) {
    float x[128];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
#pragma unroll
    for (int k = 0; k < 128; ++k) x[k] = a[(i + k * 7) % n];
    __syncthreads();
    float sum = 0;
#pragma unroll
    for (int k = 0; k < 128; ++k) sum += x[k] * x[(k * 5 + 3) % 128];
    if (i < n) out[i] = sum;
}
