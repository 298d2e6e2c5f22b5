// The part of namespace std that kernels lean on, for sources that name it. NVRTC has no
// standard library; nvcc lets device code call these.
#pragma once
namespace std {
template <typename T> __device__ constexpr const T& min(const T& a, const T& b) {
    return b < a ? b : a;
}
template <typename T> __device__ constexpr const T& max(const T& a, const T& b) {
    return a < b ? b : a;
}
template <typename T> __device__ constexpr void swap(T& a, T& b) {
    T c = a;
    a = b;
    b = c;
}

using ::abs; using ::fabs; using ::sqrt; using ::cbrt; using ::hypot; using ::pow;
using ::exp; using ::exp2; using ::expm1; using ::log; using ::log2; using ::log10; using ::log1p;
using ::sin; using ::cos; using ::tan; using ::asin; using ::acos; using ::atan; using ::atan2;
using ::sinh; using ::cosh; using ::tanh; using ::erf; using ::erfc; using ::tgamma; using ::lgamma;
using ::floor; using ::ceil; using ::round; using ::trunc; using ::rint; using ::nearbyint;
using ::fma; using ::fmin; using ::fmax; using ::fmod; using ::copysign; using ::ldexp;
using ::isnan; using ::isinf; using ::isfinite; using ::signbit;

template <typename A, typename B> struct is_same { static constexpr bool value = false; };
template <typename A> struct is_same<A, A> { static constexpr bool value = true; };
template <typename A, typename B> constexpr bool is_same_v = is_same<A, B>::value;
template <bool C, typename T = void> struct enable_if {};
template <typename T> struct enable_if<true, T> { using type = T; };
template <bool C, typename T = void> using enable_if_t = typename enable_if<C, T>::type;
template <bool C, typename A, typename B> struct conditional { using type = A; };
template <typename A, typename B> struct conditional<false, A, B> { using type = B; };
template <bool C, typename A, typename B>
using conditional_t = typename conditional<C, A, B>::type;

template <typename T> struct numeric_limits;
#define PTXSEARCH_LIMITS(type, least, lowest_, most, eps, inf, nan)                       \
    template <> struct numeric_limits<type> {                                             \
        __device__ static constexpr type min() { return least; }                          \
        __device__ static constexpr type lowest() { return lowest_; }                     \
        __device__ static constexpr type max() { return most; }                           \
        __device__ static constexpr type epsilon() { return eps; }                        \
        __device__ static type infinity() { return inf; }                                 \
        __device__ static type quiet_NaN() { return nan; }                                \
    };
#define PTXSEARCH_INTEGER(type, least, most) PTXSEARCH_LIMITS(type, least, least, most, 0, 0, 0)
PTXSEARCH_LIMITS(float, 1.175494351e-38f, -3.402823466e+38f, 3.402823466e+38f, 1.192092896e-07f,
                 __int_as_float(0x7f800000), __int_as_float(0x7fffffff))
PTXSEARCH_LIMITS(double, 2.2250738585072014e-308, -1.7976931348623158e+308,
                 1.7976931348623158e+308, 2.2204460492503131e-016,
                 __longlong_as_double(0x7ff0000000000000LL),
                 __longlong_as_double(0x7fffffffffffffffLL))
PTXSEARCH_INTEGER(signed char, -128, 127)
PTXSEARCH_INTEGER(unsigned char, 0, 255)
PTXSEARCH_INTEGER(short, -32768, 32767)
PTXSEARCH_INTEGER(unsigned short, 0, 65535)
PTXSEARCH_INTEGER(int, -2147483647 - 1, 2147483647)
PTXSEARCH_INTEGER(unsigned int, 0U, 4294967295U)
PTXSEARCH_INTEGER(long long, -9223372036854775807LL - 1, 9223372036854775807LL)
PTXSEARCH_INTEGER(unsigned long long, 0ULL, 18446744073709551615ULL)
#undef PTXSEARCH_LIMITS
#undef PTXSEARCH_INTEGER
}
