// Counts values of 8 bits: each block in shared memory, then all blocks in global memory.
extern "C" __global__ void histogram(unsigned* counts, const unsigned* values, int n) {
    __shared__ unsigned mine[256];
    for (int i = threadIdx.x; i < 256; i += blockDim.x) mine[i] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&mine[values[i]], 1u);
    __syncthreads();
    for (int i = threadIdx.x; i < 256; i += blockDim.x) atomicAdd(&counts[i], mine[i]);
}
