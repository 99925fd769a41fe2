// What a GPU's memory can move: a copy and a read of buffers far larger than its L2 cache.
//
// Every thread has several 16-byte accesses under way at once, and those of a warp lie side by side. The buffers are whole
// numbers of tiles, one for each block, so that nothing is left over.

constexpr int UNDER_WAY = 4;

extern "C" __global__ void perfsvc_peak_copy(uint4* __restrict__ to, const uint4* __restrict__ from) {
    const long long first = (long long)blockIdx.x * blockDim.x * UNDER_WAY + threadIdx.x;
    uint4 taken[UNDER_WAY];
#pragma unroll
    for (int i = 0; i < UNDER_WAY; ++i) taken[i] = from[first + i * blockDim.x];
#pragma unroll
    for (int i = 0; i < UNDER_WAY; ++i) to[first + i * blockDim.x] = taken[i];
}

extern "C" __global__ void perfsvc_peak_read(unsigned* __restrict__ sink, const uint4* __restrict__ from) {
    const long long first = (long long)blockIdx.x * blockDim.x * UNDER_WAY + threadIdx.x;
    uint4 taken[UNDER_WAY];
#pragma unroll
    for (int i = 0; i < UNDER_WAY; ++i) taken[i] = from[first + i * blockDim.x];
    unsigned sum = 0;
#pragma unroll
    for (int i = 0; i < UNDER_WAY; ++i) sum += taken[i].x + taken[i].y + taken[i].z + taken[i].w;
    // Sixteen equal words never add up to 1: the store is only there so that no compiler leaves the loads out.
    if (sum == 1) *sink = sum;
}
