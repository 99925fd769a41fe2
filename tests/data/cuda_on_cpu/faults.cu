#include <cassert>

#include "shared/scale.cuh"

extern "C" __global__ void divergent(float* out) {
  if (threadIdx.x < blockDim.x / 2) __syncthreads();
  out[threadIdx.x] = 1;
}

extern "C" __global__ void returns_early(float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  __syncthreads();
  out[i] = 1;
}

extern "C" __global__ void two_barriers(float* out) {
  if (threadIdx.x % 2)
    __syncthreads();
  else
    __syncthreads();
  out[threadIdx.x] = 1;
}

extern "C" __global__ void shuffle_with_the_gone(int* out) {
  if (threadIdx.x >= 8) return;
  out[threadIdx.x] = __shfl_down_sync(0xffffffff, threadIdx.x, 1);
}

extern "C" __global__ void shuffle_outside_its_mask(int* out) {
  out[threadIdx.x] = __shfl_sync(0x0000ffffu, threadIdx.x, 0);
}

extern "C" __global__ void asserts(int* out) {
  assert(threadIdx.x < 3);
  out[threadIdx.x] = 1;
}

extern "C" __global__ void traps() { __trap(); }

extern "C" __global__ void fine(float* out) {
  __syncthreads();
  out[blockIdx.x * blockDim.x + threadIdx.x] = scaled(2.0f, 2.0f);
}

extern "C" __global__ void deep(float* out) {
  float local[48 << 10];
  for (int i = 0; i < 48 << 10; ++i) local[i] = i + out[0];
  __syncthreads();
  out[0] = local[threadIdx.x + 7];
}
