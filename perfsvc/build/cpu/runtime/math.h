// The overloads that C++ and CUDA add to C's math functions, and CUDA's own functions.
#pragma once

#undef isnan
#undef isinf
#undef isfinite
#undef signbit

template <class T> inline bool isnan(T x) { return __builtin_isnan(x); }
template <class T> inline bool isinf(T x) { return __builtin_isinf(x); }
template <class T> inline bool isfinite(T x) { return __builtin_isfinite(x); }
template <class T> inline bool signbit(T x) { return __builtin_signbit(x); }

namespace perfsvc {
template <class T> using if_integral = std::enable_if_t<std::is_integral_v<T>, double>;
template <class A, class B>
using if_mixed = std::enable_if_t<std::is_arithmetic_v<A> && std::is_arithmetic_v<B> && !std::is_same_v<A, B>, double>;
}  // namespace perfsvc

#define PERFSVC_MATH1(name)                                                                                    \
  inline float name(float x) { return name##f(x); }                                                            \
  template <class T> inline perfsvc::if_integral<T> name(T x) { return name(static_cast<double>(x)); }         \
  namespace std { using ::name; }
#define PERFSVC_MATH2(name)                                                                                    \
  inline float name(float x, float y) { return name##f(x, y); }                                                \
  template <class A, class B> inline perfsvc::if_mixed<A, B> name(A x, B y) {                                  \
    return name(static_cast<double>(x), static_cast<double>(y));                                               \
  }                                                                                                            \
  namespace std { using ::name; }

PERFSVC_MATH1(acos) PERFSVC_MATH1(acosh) PERFSVC_MATH1(asin) PERFSVC_MATH1(asinh) PERFSVC_MATH1(atan)
PERFSVC_MATH1(atanh) PERFSVC_MATH1(cbrt) PERFSVC_MATH1(ceil) PERFSVC_MATH1(cos) PERFSVC_MATH1(cosh)
PERFSVC_MATH1(erf) PERFSVC_MATH1(erfc) PERFSVC_MATH1(exp) PERFSVC_MATH1(exp2) PERFSVC_MATH1(expm1)
PERFSVC_MATH1(fabs) PERFSVC_MATH1(floor) PERFSVC_MATH1(lgamma) PERFSVC_MATH1(log) PERFSVC_MATH1(log10)
PERFSVC_MATH1(log1p) PERFSVC_MATH1(log2) PERFSVC_MATH1(logb) PERFSVC_MATH1(nearbyint) PERFSVC_MATH1(rint)
PERFSVC_MATH1(round) PERFSVC_MATH1(sin) PERFSVC_MATH1(sinh) PERFSVC_MATH1(sqrt) PERFSVC_MATH1(tan)
PERFSVC_MATH1(tanh) PERFSVC_MATH1(tgamma) PERFSVC_MATH1(trunc)
PERFSVC_MATH2(atan2) PERFSVC_MATH2(copysign) PERFSVC_MATH2(fdim) PERFSVC_MATH2(fmax) PERFSVC_MATH2(fmin)
PERFSVC_MATH2(fmod) PERFSVC_MATH2(hypot) PERFSVC_MATH2(nextafter) PERFSVC_MATH2(pow) PERFSVC_MATH2(remainder)
#undef PERFSVC_MATH1
#undef PERFSVC_MATH2

inline float fma(float x, float y, float z) { return fmaf(x, y, z); }
inline float ldexp(float x, int exponent) { return ldexpf(x, exponent); }
inline float scalbn(float x, int exponent) { return scalbnf(x, exponent); }
inline float frexp(float x, int* exponent) { return frexpf(x, exponent); }
inline float modf(float x, float* whole) { return modff(x, whole); }
inline int ilogb(float x) { return ilogbf(x); }
inline long lround(float x) { return lroundf(x); }
inline long lrint(float x) { return lrintf(x); }
inline long long llround(float x) { return llroundf(x); }
inline long long llrint(float x) { return llrintf(x); }
inline long abs(long x) { return x < 0 ? -x : x; }
inline long long abs(long long x) { return x < 0 ? -x : x; }
inline float abs(float x) { return fabsf(x); }
inline double abs(double x) { return fabs(x); }

namespace std {
using ::abs;
using ::fma;
using ::frexp;
using ::ilogb;
using ::isfinite;
using ::isinf;
using ::isnan;
using ::ldexp;
using ::llrint;
using ::llround;
using ::lrint;
using ::lround;
using ::modf;
using ::scalbn;
using ::signbit;
}  // namespace std

#define PERFSVC_MIN_MAX(A, B, T)                                                     \
  inline T min(A a, B b) { return static_cast<T>(b) < static_cast<T>(a) ? b : a; }   \
  inline T max(A a, B b) { return static_cast<T>(a) < static_cast<T>(b) ? b : a; }
PERFSVC_MIN_MAX(int, int, int)
PERFSVC_MIN_MAX(unsigned, unsigned, unsigned)
PERFSVC_MIN_MAX(int, unsigned, unsigned)
PERFSVC_MIN_MAX(unsigned, int, unsigned)
PERFSVC_MIN_MAX(long, long, long)
PERFSVC_MIN_MAX(unsigned long, unsigned long, unsigned long)
PERFSVC_MIN_MAX(long, unsigned long, unsigned long)
PERFSVC_MIN_MAX(unsigned long, long, unsigned long)
PERFSVC_MIN_MAX(long long, long long, long long)
PERFSVC_MIN_MAX(unsigned long long, unsigned long long, unsigned long long)
PERFSVC_MIN_MAX(long long, unsigned long long, unsigned long long)
PERFSVC_MIN_MAX(unsigned long long, long long, unsigned long long)
#undef PERFSVC_MIN_MAX
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }
inline double min(double a, double b) { return fmin(a, b); }
inline double max(double a, double b) { return fmax(a, b); }
inline double min(float a, double b) { return fmin(static_cast<double>(a), b); }
inline double max(float a, double b) { return fmax(static_cast<double>(a), b); }
inline double min(double a, float b) { return fmin(a, static_cast<double>(b)); }
inline double max(double a, float b) { return fmax(a, static_cast<double>(b)); }

// Only some C libraries have functions with these names, so macros call ours.
namespace perfsvc {
constexpr double pi = 3.14159265358979323846;
template <class T> inline T rsqrt_of(T x) { return T(1) / sqrt(x); }
template <class T> inline T rcbrt_of(T x) { return T(1) / cbrt(x); }
template <class T> inline T exp10_of(T x) { return static_cast<T>(pow(10.0, static_cast<double>(x))); }
template <class T> inline T sinpi_of(T x) { return static_cast<T>(sin(pi * remainder(static_cast<double>(x), 2.0))); }
template <class T> inline T cospi_of(T x) { return static_cast<T>(cos(pi * remainder(static_cast<double>(x), 2.0))); }
template <class T> inline T normcdf_of(T x) { return static_cast<T>(0.5 * erfc(x * -0.70710678118654752440)); }
template <class T> inline void sincos_of(T x, T* sine, T* cosine) {
  *sine = sin(x);
  *cosine = cos(x);
}
template <class T> inline void sincospi_of(T x, T* sine, T* cosine) {
  *sine = sinpi_of(x);
  *cosine = cospi_of(x);
}
}  // namespace perfsvc

#define rsqrt(x) perfsvc::rsqrt_of(x)
#define rsqrtf(x) perfsvc::rsqrt_of<float>(x)
#define rcbrt(x) perfsvc::rcbrt_of(x)
#define rcbrtf(x) perfsvc::rcbrt_of<float>(x)
#define exp10(x) perfsvc::exp10_of(x)
#define exp10f(x) perfsvc::exp10_of<float>(x)
#define sinpi(x) perfsvc::sinpi_of(x)
#define sinpif(x) perfsvc::sinpi_of<float>(x)
#define cospi(x) perfsvc::cospi_of(x)
#define cospif(x) perfsvc::cospi_of<float>(x)
#define normcdf(x) perfsvc::normcdf_of(x)
#define normcdff(x) perfsvc::normcdf_of<float>(x)
#define sincos(x, sine, cosine) perfsvc::sincos_of<double>(x, sine, cosine)
#define sincosf(x, sine, cosine) perfsvc::sincos_of<float>(x, sine, cosine)
#define sincospi(x, sine, cosine) perfsvc::sincospi_of<double>(x, sine, cosine)
#define sincospif(x, sine, cosine) perfsvc::sincospi_of<float>(x, sine, cosine)
