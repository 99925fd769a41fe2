// The vector types with CUDA's alignments, their make_ functions, dim3 and the built-in indices.
#pragma once

#define PERFSVC_VECTOR(T, name, align1, align2, align4)                                                       \
  struct __align__(align1) name##1 { T x; };                                                                  \
  struct __align__(align2) name##2 { T x, y; };                                                               \
  struct __align__(align1) name##3 { T x, y, z; };                                                            \
  struct __align__(align4) name##4 { T x, y, z, w; };                                                         \
  static inline name##1 make_##name##1(T x) { return {x}; }                                                   \
  static inline name##2 make_##name##2(T x, T y) { return {x, y}; }                                           \
  static inline name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; }                                   \
  static inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }

PERFSVC_VECTOR(signed char, char, 1, 2, 4)
PERFSVC_VECTOR(unsigned char, uchar, 1, 2, 4)
PERFSVC_VECTOR(short, short, 2, 4, 8)
PERFSVC_VECTOR(unsigned short, ushort, 2, 4, 8)
PERFSVC_VECTOR(int, int, 4, 8, 16)
PERFSVC_VECTOR(unsigned int, uint, 4, 8, 16)
PERFSVC_VECTOR(long, long, 8, 16, 16)
PERFSVC_VECTOR(unsigned long, ulong, 8, 16, 16)
PERFSVC_VECTOR(long long, longlong, 8, 16, 16)
PERFSVC_VECTOR(unsigned long long, ulonglong, 8, 16, 16)
PERFSVC_VECTOR(float, float, 4, 8, 16)
PERFSVC_VECTOR(double, double, 8, 16, 16)
#undef PERFSVC_VECTOR

struct dim3 {
  unsigned int x, y, z;
  constexpr dim3(unsigned int x = 1, unsigned int y = 1, unsigned int z = 1) : x(x), y(y), z(z) {}
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
  constexpr operator uint3() const { return {x, y, z}; }
};

static __thread uint3 threadIdx;
static __thread uint3 blockIdx;
static __thread dim3 blockDim;
static __thread dim3 gridDim;
static constexpr int warpSize = 32;
