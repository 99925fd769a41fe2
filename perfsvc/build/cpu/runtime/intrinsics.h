// CUDA's intrinsics. Those that trade accuracy for speed on a GPU are exact here.
#pragma once

// C libraries reserve functions with these names.
#define __cosf(x) cosf(x)
#define __exp10f(x) exp10f(x)
#define __expf(x) expf(x)
#define __log10f(x) log10f(x)
#define __log2f(x) log2f(x)
#define __logf(x) logf(x)
#define __powf(x, y) powf(x, y)
#define __sinf(x) sinf(x)
#define __tanf(x) tanf(x)
#define __sincosf(x, sine, cosine) sincosf(x, sine, cosine)

inline float __fadd_rn(float x, float y) { return x + y; }
inline float __fsub_rn(float x, float y) { return x - y; }
inline float __fmul_rn(float x, float y) { return x * y; }
inline float __fdiv_rn(float x, float y) { return x / y; }
inline float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline float __frsqrt_rn(float x) { return static_cast<float>(1.0 / sqrt(static_cast<double>(x))); }
inline float __fdividef(float x, float y) { return x / y; }
inline float fdividef(float x, float y) { return x / y; }
inline float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }
inline double __dadd_rn(double x, double y) { return x + y; }
inline double __dsub_rn(double x, double y) { return x - y; }
inline double __dmul_rn(double x, double y) { return x * y; }
inline double __ddiv_rn(double x, double y) { return x / y; }
inline double __fma_rn(double x, double y, double z) { return fma(x, y, z); }
inline double __drcp_rn(double x) { return 1.0 / x; }
inline double __dsqrt_rn(double x) { return sqrt(x); }

namespace perfsvc {
// CUDA's conversions saturate and turn NaN into zero.
template <class To> inline To saturate(double x) {
  constexpr To low = std::numeric_limits<To>::min(), high = std::numeric_limits<To>::max();
  if (x != x) return 0;
  if (x <= static_cast<double>(low)) return low;
  return x >= static_cast<double>(high) ? high : static_cast<To>(x);
}
}  // namespace perfsvc

#define PERFSVC_CONVERT(from, From, to, To)                                                       \
  inline To __##from##2##to##_rn(From x) { return perfsvc::saturate<To>(rint(x)); }               \
  inline To __##from##2##to##_rz(From x) { return perfsvc::saturate<To>(trunc(x)); }              \
  inline To __##from##2##to##_rd(From x) { return perfsvc::saturate<To>(floor(x)); }              \
  inline To __##from##2##to##_ru(From x) { return perfsvc::saturate<To>(ceil(x)); }
PERFSVC_CONVERT(float, float, int, int)
PERFSVC_CONVERT(float, float, uint, unsigned)
PERFSVC_CONVERT(float, float, ll, long long)
PERFSVC_CONVERT(float, float, ull, unsigned long long)
PERFSVC_CONVERT(double, double, int, int)
PERFSVC_CONVERT(double, double, uint, unsigned)
PERFSVC_CONVERT(double, double, ll, long long)
PERFSVC_CONVERT(double, double, ull, unsigned long long)
#undef PERFSVC_CONVERT
inline float __int2float_rn(int x) { return static_cast<float>(x); }
inline float __uint2float_rn(unsigned x) { return static_cast<float>(x); }
inline float __ll2float_rn(long long x) { return static_cast<float>(x); }
inline float __ull2float_rn(unsigned long long x) { return static_cast<float>(x); }
inline float __double2float_rn(double x) { return static_cast<float>(x); }
inline double __int2double_rn(int x) { return x; }
inline double __uint2double_rn(unsigned x) { return x; }
inline double __ll2double_rn(long long x) { return static_cast<double>(x); }
inline double __ull2double_rn(unsigned long long x) { return static_cast<double>(x); }

inline int __float_as_int(float x) { return perfsvc::from_bits<int>(perfsvc::to_bits(x)); }
inline unsigned __float_as_uint(float x) { return perfsvc::from_bits<unsigned>(perfsvc::to_bits(x)); }
inline float __int_as_float(int x) { return perfsvc::from_bits<float>(perfsvc::to_bits(x)); }
inline float __uint_as_float(unsigned x) { return perfsvc::from_bits<float>(perfsvc::to_bits(x)); }
inline long long __double_as_longlong(double x) { return perfsvc::from_bits<long long>(perfsvc::to_bits(x)); }
inline double __longlong_as_double(long long x) { return perfsvc::from_bits<double>(perfsvc::to_bits(x)); }
inline int __double2hiint(double x) { return static_cast<int>(__double_as_longlong(x) >> 32); }
inline int __double2loint(double x) { return static_cast<int>(__double_as_longlong(x)); }
inline double __hiloint2double(int high, int low) {
  return perfsvc::from_bits<double>(static_cast<unsigned long long>(static_cast<unsigned>(high)) << 32 |
                                    static_cast<unsigned>(low));
}

// GCC's own popcount calls libgcc, which is not linked.
inline int __popcll(unsigned long long x) {
  x -= x >> 1 & 0x5555555555555555ull;
  x = (x & 0x3333333333333333ull) + (x >> 2 & 0x3333333333333333ull);
  return static_cast<int>((x + (x >> 4) & 0x0f0f0f0f0f0f0f0full) * 0x0101010101010101ull >> 56);
}
inline int __popc(unsigned x) { return __popcll(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x)); }
inline int __clzll(long long x) { return x == 0 ? 64 : __builtin_clzll(static_cast<unsigned long long>(x)); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned long long __brevll(unsigned long long x) {
  x = (x & 0x5555555555555555ull) << 1 | (x >> 1 & 0x5555555555555555ull);
  x = (x & 0x3333333333333333ull) << 2 | (x >> 2 & 0x3333333333333333ull);
  x = (x & 0x0f0f0f0f0f0f0f0full) << 4 | (x >> 4 & 0x0f0f0f0f0f0f0f0full);
  return __builtin_bswap64(x);
}
inline unsigned __brev(unsigned x) { return static_cast<unsigned>(__brevll(x) >> 32); }
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  unsigned long long bytes = static_cast<unsigned long long>(y) << 32 | x;
  unsigned result = 0;
  for (unsigned i = 0; i < 4; ++i) {
    unsigned nibble = selector >> 4 * i & 15, byte = static_cast<unsigned>(bytes >> 8 * (nibble & 7)) & 255;
    result |= (nibble & 8 ? (byte >> 7) * 255u : byte) << 8 * i;
  }
  return result;
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>((static_cast<unsigned long long>(high) << 32 | low) << (shift & 31) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>((static_cast<unsigned long long>(high) << 32 | low) >> (shift & 31));
}

inline int __mul24(int x, int y) { return (x << 8 >> 8) * (y << 8 >> 8); }
inline unsigned __umul24(unsigned x, unsigned y) { return (x & 0xffffffu) * (y & 0xffffffu); }
inline int __mulhi(int x, int y) { return static_cast<int>(static_cast<long long>(x) * y >> 32); }
inline unsigned __umulhi(unsigned x, unsigned y) {
  return static_cast<unsigned>(static_cast<unsigned long long>(x) * y >> 32);
}
inline long long __mul64hi(long long x, long long y) { return static_cast<long long>(static_cast<__int128>(x) * y >> 64); }
inline unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
  return static_cast<unsigned long long>(static_cast<unsigned __int128>(x) * y >> 64);
}
inline int __hadd(int x, int y) { return static_cast<int>((static_cast<long long>(x) + y) >> 1); }
inline int __rhadd(int x, int y) { return static_cast<int>((static_cast<long long>(x) + y + 1) >> 1); }
inline unsigned __usad(unsigned x, unsigned y, unsigned z) { return (x < y ? y - x : x - y) + z; }
inline unsigned __sad(int x, int y, unsigned z) {
  long long difference = static_cast<long long>(x) - y;
  return static_cast<unsigned>(difference < 0 ? -difference : difference) + z;
}
inline int __dp4a(int x, int y, int sum) {
  for (int i = 0; i < 32; i += 8) sum += static_cast<signed char>(x >> i) * static_cast<signed char>(y >> i);
  return sum;
}
inline unsigned __dp4a(unsigned x, unsigned y, unsigned sum) {
  for (int i = 0; i < 32; i += 8) sum += (x >> i & 255u) * (y >> i & 255u);
  return sum;
}

// Cache hints have no effect here.
#define PERFSVC_LOAD(name) \
  template <class T> inline T name(const T* address) { return *address; }
#define PERFSVC_STORE(name) \
  template <class T> inline void name(T* address, T value) { *address = value; }
PERFSVC_LOAD(__ldg) PERFSVC_LOAD(__ldca) PERFSVC_LOAD(__ldcg) PERFSVC_LOAD(__ldcs) PERFSVC_LOAD(__ldcv)
PERFSVC_LOAD(__ldlu) PERFSVC_STORE(__stcg) PERFSVC_STORE(__stcs) PERFSVC_STORE(__stwb) PERFSVC_STORE(__stwt)
#undef PERFSVC_LOAD
#undef PERFSVC_STORE

// Nanoseconds, where a GPU counts cycles. clock() is the C library's.
inline long long clock64() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000000000ll + now.tv_nsec;
}

// The other threads of the block can run only when this one waits at a barrier, so sleeping would be useless.
inline void __nanosleep(unsigned) {}

[[noreturn]] inline void __trap() { perfsvc::fail("__trap() by thread (%u,%u,%u)", threadIdx.x, threadIdx.y, threadIdx.z); }

// A programmatic launch waits for the launch before it. Here, that launch has ended already.
inline void cudaGridDependencySynchronize() {}
inline void cudaTriggerProgrammaticLaunchCompletion() {}
