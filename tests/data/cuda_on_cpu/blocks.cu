#include <cuda_runtime.h>
#include <device_launch_parameters.h>

#include <cmath>
#include <cstdint>

#include "shared/scale.cuh"

#ifndef TILE
#define TILE 16
#endif

__constant__ float coefficients[4];
__device__ int visits;

extern "C" __global__ void __launch_bounds__(256)
vector_add(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ out, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) out[i] = a[i] + __ldg(&b[i]);
}

extern "C" __global__ void transpose(const float* in, float* out, int rows, int columns) {
  __shared__ float tile[TILE][TILE + 1];
  int x = blockIdx.x * TILE + threadIdx.x, y = blockIdx.y * TILE + threadIdx.y;
  if (x < columns && y < rows) tile[threadIdx.y][threadIdx.x] = in[y * columns + x];
  __syncthreads();
  x = blockIdx.y * TILE + threadIdx.x;
  y = blockIdx.x * TILE + threadIdx.y;
  if (x < rows && y < columns) out[y * rows + x] = tile[threadIdx.x][threadIdx.y];
}

template <typename T>
__device__ void tree_sum(const T* in, T* out, int n) {
  extern __shared__ __align__(16) unsigned char bytes[];
  T* partial = reinterpret_cast<T*>(bytes);
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  partial[threadIdx.x] = i < n ? in[i] : T(0);
  for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) partial[threadIdx.x] += partial[threadIdx.x + half];
  }
  if (threadIdx.x == 0) out[blockIdx.x] = partial[0];
}

extern "C" {
__global__ void tree_sum_float(const float* in, float* out, int n) { tree_sum(in, out, n); }
__global__ void tree_sum_double(const double* in, double* out, int n) { tree_sum(in, out, n); }
}

extern __shared__ float staged[];

extern "C" __global__ void reversed_in_blocks(const float* in, float* out) {
  int base = blockIdx.x * blockDim.x;
  staged[threadIdx.x] = in[base + threadIdx.x];
  __syncthreads();
  out[base + threadIdx.x] = staged[blockDim.x - 1 - threadIdx.x];
}

extern "C" __global__ void indices(uint3* threads, uint3* blocks, dim3 expected) {
  int in_block = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  int block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  int i = block * blockDim.x * blockDim.y * blockDim.z + in_block;
  if (expected.x != blockDim.x || expected.y != blockDim.y || expected.z != blockDim.z) return;
  threads[i] = threadIdx;
  blocks[i] = make_uint3(blockIdx.x, blockIdx.y, blockIdx.z);
}

extern "C" __global__ void float4_scaled(const float4* in, float4* out, float factor, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float4 v = in[i];
  out[i] = make_float4(scaled(v.x, factor), scaled(v.y, factor), scaled(v.z, factor), scaled(v.w, factor));
}

extern "C" __global__ void polynomial(const float* x, float* out) {
  float value = 0;
#pragma unroll
  for (int k = 3; k >= 0; --k) value = value * x[threadIdx.x] + coefficients[k];
  out[threadIdx.x] = value;
}

extern "C" __global__ void counted(const int* predicate, int* out) {
  int p = predicate[threadIdx.x];
  int count = __syncthreads_count(p), all = __syncthreads_and(p), any = __syncthreads_or(p);
  out[threadIdx.x] = count * 100 + all * 10 + any;
}

extern "C" __global__ void visit(int* out) {
  atomicAdd(&visits, 1);
  out[0] = visits;
}
