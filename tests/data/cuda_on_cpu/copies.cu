#include <cuda_pipeline.h>

// Each block turns 64 floats around, copied `WIDTH` at a time; those from n on count as zeros.
extern "C" __global__ void turned_around(const float* in, float* out, int n) {
  extern __shared__ float4 aligned[];
  float* shared = reinterpret_cast<float*>(aligned);
  const int first = blockIdx.x * 64 + threadIdx.x * WIDTH;
  const size_t size = WIDTH * sizeof(float);
  const size_t zeros = min(max(first + WIDTH - n, 0), WIDTH) * sizeof(float);
  __pipeline_memcpy_async(shared + threadIdx.x * WIDTH, in + first, size, zeros);
  __pipeline_commit();
  __pipeline_wait_prior(0);
  __syncthreads();
  for (int item = threadIdx.x; item < 64; item += blockDim.x) out[blockIdx.x * 64 + item] = shared[63 - item];
}

extern "C" __global__ void shifted(const float* in) {
  __shared__ float4 aligned[2];
  __pipeline_memcpy_async(aligned, in + 1, 16);
}

extern "C" __global__ void too_wide(const float* in) {
  __shared__ float4 aligned[2];
  __pipeline_memcpy_async(aligned, in, 32);
}
