extern "C" __global__ void chunks(float* sums, const float* a, const float* b) {
    __shared__ float parts[256];
    long first = (long)blockIdx.x * CHUNK;
    float sum = 0.0f;
    for (int i = threadIdx.x; i < CHUNK; i += 256) sum += a[first + i] * b[first + i];
    parts[threadIdx.x] = sum;
    for (int half = 128; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) parts[threadIdx.x] += parts[threadIdx.x + half];
    }
    if (threadIdx.x == 0) sums[blockIdx.x] = parts[0];
}
