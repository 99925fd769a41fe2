// y = softmax(x) of each row: one block for a row, which it reads three times.

static __device__ float over_block(float value, bool largest, float* shared) {
    for (int lane = 16; lane; lane >>= 1) {
        const float other = __shfl_xor_sync(0xffffffffu, value, lane);
        value = largest ? fmaxf(value, other) : value + other;
    }
    __syncthreads();
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
    __syncthreads();
    value = shared[0];
    for (int warp = 1; warp < blockDim.x / 32; warp++) value = largest ? fmaxf(value, shared[warp]) : value + shared[warp];
    return value;
}

extern "C" __global__ void softmax(float* __restrict__ y, const float* __restrict__ x, int columns) {
    __shared__ float shared[32];
    const float* row = x + (size_t)blockIdx.x * columns;
    float* out = y + (size_t)blockIdx.x * columns;
    float largest = -INFINITY;
    for (int i = threadIdx.x; i < columns; i += blockDim.x) largest = fmaxf(largest, row[i]);
    largest = over_block(largest, true, shared);
    float sum = 0.0f;
    for (int i = threadIdx.x; i < columns; i += blockDim.x) sum += expf(row[i] - largest);
    sum = over_block(sum, false, shared);
    for (int i = threadIdx.x; i < columns; i += blockDim.x) out[i] = expf(row[i] - largest) / sum;
}
