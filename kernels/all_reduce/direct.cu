// Each of two GPUs adds its own array to that of the other GPU, which it reads over the link. `n` is a multiple of 4.
extern "C" __global__ void all_reduce_direct(float4 *total, const float4 *own, const float4 *other, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n / 4; i += gridDim.x * blockDim.x) {
        const float4 a = own[i];
        const float4 b = other[i];
        total[i] = make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
    }
}
