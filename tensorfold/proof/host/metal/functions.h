// Integer, relational, geometric and floating-point functions of the Metal standard library. Knows no threads.
#pragma once
#include "types.h"

namespace metal {
#define MSL_INTEGER(T)                                                                            \
  inline T min(T a, T b) { return a < b ? a : b; }                                                \
  inline T max(T a, T b) { return a < b ? b : a; }                                                \
  inline T clamp(T x, T a, T b) { return min(max(x, a), b); }                                     \
  inline T abs(T x) { return x < 0 ? (T)-x : x; }                                                 \
  inline T popcount(T x) { return (T)__builtin_popcountl((ulong)(make_unsigned_t<T>)x); }         \
  inline T clz(T x) { \
    return (T)(x == 0 ? sizeof(T) * 8 : __builtin_clzl((ulong)(make_unsigned_t<T>)x) - (64 - sizeof(T) * 8)); \
  } \
  inline T ctz(T x) { return (T)(x == 0 ? sizeof(T) * 8 : __builtin_ctzl((ulong)(make_unsigned_t<T>)x)); } \
  inline T rotate(T x, T n) {                                                                     \
    make_unsigned_t<T> u = (make_unsigned_t<T>)x;                                                 \
    uint bits = sizeof(T) * 8, k = (uint)n % bits;                                                \
    return (T)(k == 0 ? u : (make_unsigned_t<T>)((u << k) | (u >> (bits - k))));                  \
  }                                                                                               \
  inline T mulhi(T a, T b) { return (T)(((__int128)a * (__int128)b) >> (sizeof(T) * 8)); }        \
  inline T extract_bits(T x, uint o, uint n) {                                                    \
    uint bits = sizeof(T) * 8;                                                                    \
    return n == 0 ? 0 : (T)(((T)((make_unsigned_t<T>)x << (bits - n - o))) >> (bits - n));        \
  }                                                                                               \
  inline T reverse_bits(T x) {                                                                    \
    make_unsigned_t<T> r = 0;                                                                     \
    for (uint i = 0; i < sizeof(T) * 8; i++) r |= (((make_unsigned_t<T>)x >> i) & 1) << (sizeof(T) * 8 - 1 - i); \
    return (T)r;                                                                                  \
  }
MSL_INTEGERS(MSL_INTEGER)
namespace precise {
#include "math_functions.h"
}
namespace fast {
#include "math_functions.h"
}
#include "math_functions.h"
#define MSL_EACH1(NAME)                                                            \
  template <class T, int N> inline vec<T, N> NAME(vec<T, N> x) {                   \
    vec<T, N> r;                                                                   \
    for (int i = 0; i < N; i++) r[i] = NAME(x[i]);                                 \
    return r;                                                                      \
  }
MSL_EACH1(popcount) MSL_EACH1(clz) MSL_EACH1(ctz)

template <class T> inline bool isnan(T x) { return __builtin_isnan((float)x); }
template <class T> inline bool isinf(T x) { return __builtin_isinf((float)x); }
template <class T> inline bool isfinite(T x) { return __builtin_isfinite((float)x); }
template <class T> inline bool signbit(T x) { return __builtin_signbit((float)x); }
template <class T> inline enable_if_t<__vt<T>::n == 1, T> select(T a, T b, bool c) { return c ? b : a; }
template <class T, int N, class C> inline vec<T, N> select(vec<T, N> a, vec<T, N> b, vec<C, N> c) {
  vec<T, N> r;
  for (int i = 0; i < N; i++) r[i] = c[i] ? b[i] : a[i];
  return r;
}
template <class C, int N> inline bool any(vec<C, N> c) {
  bool r = false;
  for (int i = 0; i < N; i++) r = r || c[i];
  return r;
}
template <class C, int N> inline bool all(vec<C, N> c) {
  bool r = true;
  for (int i = 0; i < N; i++) r = r && c[i];
  return r;
}
inline bool any(bool b) { return b; }
inline bool all(bool b) { return b; }
template <class T, int N> inline T dot(vec<T, N> a, vec<T, N> b) {
  T s = a[0] * b[0];
  for (int i = 1; i < N; i++) s = s + a[i] * b[i];
  return s;
}
template <class T, int N> inline T length_squared(vec<T, N> a) { return dot(a, a); }
template <class T, int N> inline T length(vec<T, N> a) { return sqrt(dot(a, a)); }
template <class T, int N> inline vec<T, N> normalize(vec<T, N> a) { return a * rsqrt(dot(a, a)); }
template <class T, int N> inline T distance(vec<T, N> a, vec<T, N> b) { return length(a - b); }
}  // namespace metal
