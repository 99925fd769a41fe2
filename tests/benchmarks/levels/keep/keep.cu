// y = 2 x; `keep` asks the L2 cache to keep what it reads, `plain` does not.
extern "C" __global__ void plain(float* y, const float* x, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) y[i] = 2.0f * x[i];
}

extern "C" __global__ void keep(float* y, const float* x, int n) {
#ifdef __CUDA_ARCH__
    unsigned long long policy;
    asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        float value;
        asm volatile("ld.global.L2::cache_hint.f32 %0, [%1], %2;" : "=f"(value) : "l"(x + i), "l"(policy));
        y[i] = 2.0f * value;
    }
#endif
}
