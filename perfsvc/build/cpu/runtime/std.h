// The part of namespace std that kernels use. The C++ library itself is not used: it would have to be found or built.
#pragma once

namespace std {

using ::int16_t;
using ::int32_t;
using ::int64_t;
using ::int8_t;
using ::intptr_t;
using ::memcpy;
using ::memset;
using ::ptrdiff_t;
using ::size_t;
using ::uint16_t;
using ::uint32_t;
using ::uint64_t;
using ::uint8_t;
using ::uintptr_t;
typedef decltype(nullptr) nullptr_t;

template <class T, T v> struct integral_constant {
  static constexpr T value = v;
  typedef T value_type;
  constexpr operator T() const { return v; }
};
template <bool b> using bool_constant = integral_constant<bool, b>;
using true_type = bool_constant<true>;
using false_type = bool_constant<false>;

template <bool b, class T = void> struct enable_if {};
template <class T> struct enable_if<true, T> { typedef T type; };
template <bool b, class T = void> using enable_if_t = typename enable_if<b, T>::type;

template <bool b, class T, class F> struct conditional { typedef T type; };
template <class T, class F> struct conditional<false, T, F> { typedef F type; };
template <bool b, class T, class F> using conditional_t = typename conditional<b, T, F>::type;

template <class T> struct remove_reference { typedef T type; };
template <class T> struct remove_reference<T&> { typedef T type; };
template <class T> struct remove_reference<T&&> { typedef T type; };
template <class T> using remove_reference_t = typename remove_reference<T>::type;
template <class T> struct remove_const { typedef T type; };
template <class T> struct remove_const<const T> { typedef T type; };
template <class T> using remove_const_t = typename remove_const<T>::type;
template <class T> struct remove_volatile { typedef T type; };
template <class T> struct remove_volatile<volatile T> { typedef T type; };
template <class T> struct remove_cv { typedef remove_const_t<typename remove_volatile<T>::type> type; };
template <class T> using remove_cv_t = typename remove_cv<T>::type;
template <class T> using decay_t = remove_cv_t<remove_reference_t<T>>;

template <class A, class B> struct is_same : false_type {};
template <class A> struct is_same<A, A> : true_type {};
template <class A, class B> inline constexpr bool is_same_v = is_same<A, B>::value;

template <class T, class... Of> inline constexpr bool perfsvc_is_one_of = (is_same_v<remove_cv_t<T>, Of> || ...);
template <class T>
struct is_integral
    : bool_constant<perfsvc_is_one_of<T, bool, char, signed char, unsigned char, wchar_t, char16_t, char32_t, short,
                                      unsigned short, int, unsigned, long, unsigned long, long long,
                                      unsigned long long>> {};
template <class T> struct is_floating_point : bool_constant<perfsvc_is_one_of<T, float, double, long double>> {};
template <class T> struct is_arithmetic : bool_constant<is_integral<T>::value || is_floating_point<T>::value> {};
template <class T> struct is_signed : bool_constant<is_arithmetic<T>::value && T(-1) < T(0)> {};
template <class T> struct is_unsigned : bool_constant<is_integral<T>::value && !(T(-1) < T(0))> {};
template <class T> struct is_trivially_copyable : bool_constant<__is_trivially_copyable(T)> {};
template <class T> struct is_pointer : false_type {};
template <class T> struct is_pointer<T*> : true_type {};
template <class T> inline constexpr bool is_integral_v = is_integral<T>::value;
template <class T> inline constexpr bool is_floating_point_v = is_floating_point<T>::value;
template <class T> inline constexpr bool is_arithmetic_v = is_arithmetic<T>::value;
template <class T> inline constexpr bool is_signed_v = is_signed<T>::value;
template <class T> inline constexpr bool is_unsigned_v = is_unsigned<T>::value;
template <class T> inline constexpr bool is_trivially_copyable_v = is_trivially_copyable<T>::value;
template <class T> inline constexpr bool is_pointer_v = is_pointer<T>::value;

template <class T> constexpr remove_reference_t<T>&& move(T&& value) {
  return static_cast<remove_reference_t<T>&&>(value);
}
template <class T> constexpr T&& forward(remove_reference_t<T>& value) { return static_cast<T&&>(value); }
template <class T> constexpr T&& forward(remove_reference_t<T>&& value) { return static_cast<T&&>(value); }
template <class T> constexpr void swap(T& a, T& b) {
  T kept = move(a);
  a = move(b);
  b = move(kept);
}
template <class T> constexpr const T& min(const T& a, const T& b) { return b < a ? b : a; }
template <class T> constexpr const T& max(const T& a, const T& b) { return a < b ? b : a; }

template <class T> struct numeric_limits;
#define PERFSVC_LIMITS(T, least, low, most, bits, step)                                                 \
  template <> struct numeric_limits<T> {                                                                \
    static constexpr bool is_specialized = true;                                                        \
    static constexpr bool is_integer = is_integral<T>::value;                                           \
    static constexpr bool is_signed = std::is_signed<T>::value;                                         \
    static constexpr int digits = bits;                                                                 \
    static constexpr T min() { return least; }                                                          \
    static constexpr T lowest() { return low; }                                                         \
    static constexpr T max() { return most; }                                                           \
    static constexpr T epsilon() { return step; }                                                       \
    static constexpr T infinity() { return is_integer ? 0 : static_cast<T>(__builtin_inff()); }         \
    static constexpr T quiet_NaN() { return is_integer ? 0 : static_cast<T>(__builtin_nanf("")); }      \
  };
#define PERFSVC_LIMITS_INTEGER(T, least, most) \
  PERFSVC_LIMITS(T, least, least, most, 8 * sizeof(T) - is_signed, 0)
PERFSVC_LIMITS_INTEGER(char, CHAR_MIN, CHAR_MAX)
PERFSVC_LIMITS_INTEGER(signed char, SCHAR_MIN, SCHAR_MAX)
PERFSVC_LIMITS_INTEGER(unsigned char, 0, UCHAR_MAX)
PERFSVC_LIMITS_INTEGER(short, SHRT_MIN, SHRT_MAX)
PERFSVC_LIMITS_INTEGER(unsigned short, 0, USHRT_MAX)
PERFSVC_LIMITS_INTEGER(int, INT_MIN, INT_MAX)
PERFSVC_LIMITS_INTEGER(unsigned int, 0, UINT_MAX)
PERFSVC_LIMITS_INTEGER(long, LONG_MIN, LONG_MAX)
PERFSVC_LIMITS_INTEGER(unsigned long, 0, ULONG_MAX)
PERFSVC_LIMITS_INTEGER(long long, LLONG_MIN, LLONG_MAX)
PERFSVC_LIMITS_INTEGER(unsigned long long, 0, ULLONG_MAX)
PERFSVC_LIMITS(float, FLT_MIN, -FLT_MAX, FLT_MAX, FLT_MANT_DIG, FLT_EPSILON)
PERFSVC_LIMITS(double, DBL_MIN, -DBL_MAX, DBL_MAX, DBL_MANT_DIG, DBL_EPSILON)
#undef PERFSVC_LIMITS
#undef PERFSVC_LIMITS_INTEGER

}  // namespace std
