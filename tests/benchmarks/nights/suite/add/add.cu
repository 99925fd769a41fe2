// With RECODED there is a store more, which never happens: other code, and just as fast.
#define NEVER(n) (RECODED && (n) < 0)

// PERCENT of the elements are added once more when all others are done, and have left the cache by then.
__device__ void strided(float* c, const float* a, const float* b, int n) {
    long total = n + (long)n * PERCENT / 100;
    for (long i = blockIdx.x * blockDim.x + threadIdx.x; i < total; i += gridDim.x * blockDim.x) {
        long at = i;
        while (at >= n) at -= n;
        c[at] = a[at] + b[at];
    }
    if (NEVER(n)) c[0] = 0.0f;
}

extern "C" __global__ void plain(float* c, const float* a, const float* b, int n) { strided(c, a, b, n); }

extern "C" __global__ void small_blocks(float* c, const float* a, const float* b, int n) { strided(c, a, b, n); }

extern "C" __global__ void quads(float* c, const float* a, const float* b, int n) {
    long i = 4 * (long)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= n) return;
    float4 x = *(const float4*)(a + i), y = *(const float4*)(b + i);
    *(float4*)(c + i) = make_float4(x.x + y.x, x.y + y.y, x.z + y.z, x.w + y.w);
}
