#pragma once

template <typename T>
__host__ __device__ __forceinline__ T scaled(T value, T factor) {
  return value * factor;
}
