// Types, limits and traits of the Metal standard library, in C++ for OpenCL. Knows no functions.
#pragma once
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#pragma OPENCL EXTENSION __cl_clang_function_pointers : enable
#define __METAL__ 1
#define device __global
#define threadgroup __local
#define thread __private
#define thread_cref  // `const thread T&` becomes a generic reference, so that temporaries bind
#define constant const __constant
#define coherent(x)
#define METAL_FUNC inline __attribute__((always_inline))
#define METAL_CONST __attribute__((const))
#define INFINITY (__builtin_inff())
#define NAN (__builtin_nanf(""))
#define HUGE_VALF INFINITY
#define FLT_MAX 3.40282346638528859812e+38F
#define FLT_MIN 1.17549435082228750797e-38F
#define FLT_EPSILON 1.1920928955078125e-07F
#define MAXFLOAT FLT_MAX
#define HALF_MAX ((half)65504.0f)
#define MAXHALF HALF_MAX
#define M_PI_F 3.14159265358979323846f
#define M_PI_2_F 1.57079632679489661923f
#define M_E_F 2.71828182845904523536f
#define M_LOG2E_F 1.44269504088896340736f
#define M_LOG10E_F 0.43429448190325182765f
#define M_LN2_F 0.69314718055994530942f
#define M_LN10_F 2.30258509299404568402f
#define M_SQRT2_F 1.41421356237309504880f
#define M_SQRT1_2_F 0.70710678118654752440f
#define UINT_MAX 0xffffffffu
#define INT_MAX 0x7fffffff
#define INT_MIN (-0x7fffffff - 1)
#define UCHAR_MAX 255
#define USHRT_MAX 65535

typedef signed char int8_t;
typedef unsigned char uint8_t, uchar;
typedef short int16_t;
typedef unsigned short uint16_t, ushort;
typedef int int32_t;
typedef unsigned int uint32_t, uint;
typedef long int64_t, ptrdiff_t, intptr_t;
typedef unsigned long uint64_t, ulong, size_t, uintptr_t;
typedef __bf16 bfloat;

// every scalar type once: X(type)
#define MSL_INTEGERS(X) X(char) X(uchar) X(short) X(ushort) X(int) X(uint) X(long) X(ulong)
#define MSL_FLOATS(X) X(half) X(float) X(bfloat)
#define MSL_SCALARS(X) MSL_INTEGERS(X) MSL_FLOATS(X)

#define MSL_VECTOR(T)                                    \
  typedef T T##2 __attribute__((ext_vector_type(2)));    \
  typedef T T##3 __attribute__((ext_vector_type(3)));    \
  typedef T T##4 __attribute__((ext_vector_type(4)));
MSL_SCALARS(MSL_VECTOR)
typedef char bool2 __attribute__((ext_vector_type(2)));
typedef char bool3 __attribute__((ext_vector_type(3)));
typedef char bool4 __attribute__((ext_vector_type(4)));

#define MSL_PACKED_N(T, N)                  \
  struct packed_##T##N {                    \
    T e[N];                                 \
    operator T##N() const {                 \
      T##N r;                               \
      for (int i = 0; i < N; i++) r[i] = e[i]; \
      return r;                             \
    }                                       \
  };
#define MSL_PACKED(T) MSL_PACKED_N(T, 2) MSL_PACKED_N(T, 3) MSL_PACKED_N(T, 4)
MSL_INTEGERS(MSL_PACKED) MSL_PACKED(half) MSL_PACKED(float)

namespace metal {
template <class T, int N> using vec = T __attribute__((ext_vector_type(N)));
template <class T> struct __vt { typedef T E; static constexpr int n = 1; };
template <class T, int N> struct __vt<T __attribute__((ext_vector_type(N)))> {
  typedef T E;
  static constexpr int n = N;
};

template <class T, T v> struct integral_constant {
  static constexpr __constant T value = v;
  typedef T value_type;
  typedef integral_constant type;
  constexpr operator T() const { return v; }
  constexpr T operator()() const { return v; }
};
template <bool b> using bool_constant = integral_constant<bool, b>;
typedef bool_constant<true> true_type;
typedef bool_constant<false> false_type;
template <bool B, class T = void> struct enable_if {};
template <class T> struct enable_if<true, T> { typedef T type; };
template <bool B, class T = void> using enable_if_t = typename enable_if<B, T>::type;
template <bool B, class T, class F> struct conditional { typedef T type; };
template <class T, class F> struct conditional<false, T, F> { typedef F type; };
template <bool B, class T, class F> using conditional_t = typename conditional<B, T, F>::type;
template <class T, class U> struct is_same : false_type {};
template <class T> struct is_same<T, T> : true_type {};
template <class T, class U> constexpr constant bool is_same_v = __is_same(T, U);
template <class T> struct remove_const { typedef T type; };
template <class T> struct remove_const<const T> { typedef T type; };
template <class T> using remove_const_t = typename remove_const<T>::type;
template <class T> struct remove_volatile { typedef T type; };
template <class T> struct remove_volatile<volatile T> { typedef T type; };
template <class T> struct remove_cv { typedef typename remove_const<typename remove_volatile<T>::type>::type type; };
template <class T> using remove_cv_t = typename remove_cv<T>::type;
template <class T> struct remove_reference { typedef T type; };
template <class T> struct remove_reference<T&> { typedef T type; };
template <class T> struct remove_reference<T&&> { typedef T type; };
template <class T> using remove_reference_t = typename remove_reference<T>::type;
template <class T> struct remove_pointer { typedef T type; };
template <class T> struct remove_pointer<T*> { typedef T type; };
template <class T> using remove_pointer_t = typename remove_pointer<T>::type;
template <class T> struct remove_addrspace { typedef T type; };
template <class T> struct remove_addrspace<__global T> { typedef T type; };
template <class T> struct remove_addrspace<__local T> { typedef T type; };
template <class T> struct remove_addrspace<__private T> { typedef T type; };
template <class T> struct remove_addrspace<__constant T> { typedef T type; };
template <class T> using remove_addrspace_t = typename remove_addrspace<T>::type;
template <class T> using decay_t = remove_cv_t<remove_addrspace_t<remove_reference_t<T>>>;

template <class T> struct __kind { static constexpr __constant int v = 0; };  // 1 signed, 2 unsigned, 3 floating
#define MSL_KIND(T, K) template <> struct __kind<T> { static constexpr __constant int v = K; };
MSL_KIND(bool, 2) MSL_KIND(char, 1) MSL_KIND(signed char, 1) MSL_KIND(short, 1) MSL_KIND(int, 1) MSL_KIND(long, 1)
MSL_KIND(uchar, 2) MSL_KIND(ushort, 2) MSL_KIND(uint, 2) MSL_KIND(ulong, 2) MSL_KIND(half, 3)
MSL_KIND(float, 3) MSL_KIND(bfloat, 3)
template <class T> constexpr constant int __kind_v = __kind<remove_cv_t<T>>::v;
#define MSL_TRAIT(NAME, TEST)                                 \
  template <class T> constexpr constant bool NAME##_v = TEST; \
  template <class T> struct NAME : bool_constant<TEST> {};
MSL_TRAIT(is_integral, (__kind_v<T> == 1 || __kind_v<T> == 2))
MSL_TRAIT(is_floating_point, (__kind_v<T> == 3))
MSL_TRAIT(is_arithmetic, (__kind_v<T> != 0))
MSL_TRAIT(is_scalar, (__kind_v<T> != 0))
MSL_TRAIT(is_signed, (__kind_v<T> == 1 || __kind_v<T> == 3))
MSL_TRAIT(is_unsigned, (__kind_v<T> == 2))
template <class A, class B> constexpr constant bool is_convertible_v = __is_convertible_to(A, B);
template <class A, class B> struct is_convertible : bool_constant<__is_convertible_to(A, B)> {};
template <class T> struct make_unsigned;
template <class T> struct make_signed;
#define MSL_SIGNS(S, U)                                   \
  template <> struct make_unsigned<S> { typedef U type; }; \
  template <> struct make_unsigned<U> { typedef U type; }; \
  template <> struct make_signed<S> { typedef S type; };   \
  template <> struct make_signed<U> { typedef S type; };
MSL_SIGNS(char, uchar) MSL_SIGNS(short, ushort) MSL_SIGNS(int, uint) MSL_SIGNS(long, ulong)
template <class T> using make_unsigned_t = typename make_unsigned<T>::type;
template <class T> using make_signed_t = typename make_signed<T>::type;

template <class T, size_t N> struct array {
  T __e[N];
  constexpr T operator[](size_t i) const { return __e[i]; }
  T& operator[](size_t i) { return __e[i]; }
  constexpr size_t size() const { return N; }
};
template <class T> using uniform = T;

template <class T> struct numeric_limits;
#define MSL_LIMITS(T, MIN, MAX, LOWEST, DIGITS, MORE)        \
  template <> struct numeric_limits<T> {                     \
    static constexpr __constant bool is_specialized = true;  \
    static constexpr __constant int digits = DIGITS;         \
    static constexpr T min() { return MIN; }                 \
    static constexpr T max() { return MAX; }                 \
    static constexpr T lowest() { return LOWEST; }           \
    MORE                                                     \
  };
#define MSL_INTEGER_LIMITS(S, U, BITS)                                            \
  MSL_LIMITS(S, (S)(-((S)((((ulong)1) << (BITS - 1)) - 1)) - 1),                  \
             (S)((((ulong)1) << (BITS - 1)) - 1), min(), BITS - 1, )              \
  MSL_LIMITS(U, 0, (U)(~(U)0), 0, BITS, )
MSL_INTEGER_LIMITS(char, uchar, 8) MSL_INTEGER_LIMITS(short, ushort, 16)
MSL_INTEGER_LIMITS(int, uint, 32) MSL_INTEGER_LIMITS(long, ulong, 64)
MSL_LIMITS(bool, false, true, false, 1, )
#define MSL_FLOAT_LIMITS(T, MIN, MAX, EPS, DIGITS)                       \
  MSL_LIMITS(T, (T)(MIN), (T)(MAX), (T)(-(MAX)), DIGITS,                 \
             static constexpr T epsilon() { return (T)(EPS); }           \
             static constexpr T infinity() { return (T)__builtin_inff(); } \
             static constexpr T quiet_NaN() { return (T)__builtin_nanf(""); })
MSL_FLOAT_LIMITS(float, 1.17549435e-38f, 3.40282347e+38f, 1.1920929e-07f, 24)
MSL_FLOAT_LIMITS(half, 6.103515625e-05f, 65504.0f, 9.765625e-04f, 11)
MSL_FLOAT_LIMITS(bfloat, 1.17549435e-38f, 3.38953139e+38f, 7.8125e-03f, 8)

// float4(...) and its kin are function-like macros onto __mk: component counts are checked
template <class V> inline constexpr V __mk() { return V(0); }
template <class V, class A> inline constexpr V __mk1(A a) {
  if constexpr (__vt<A>::n == 1) return V((typename __vt<V>::E)a);
  else {
    static_assert(__vt<A>::n == __vt<V>::n, "vector constructor: component count mismatch");
    return __builtin_convertvector(a, V);
  }
}
template <class V, class A> inline void __fill(__private V& v, __private int& k, A a) {
  if constexpr (__vt<A>::n == 1) v[k++] = (typename __vt<V>::E)a;
  else for (int i = 0; i < __vt<A>::n; i++) v[k++] = (typename __vt<V>::E)a[i];
}
template <class V, class A, class... R> inline constexpr V __mk(A a, R... r) {
  if constexpr (sizeof...(R) == 0) return __mk1<V>(a);
  else {
    static_assert((__vt<A>::n + ... + __vt<R>::n) == __vt<V>::n, "vector constructor: component count mismatch");
    if constexpr (sizeof...(R) + 1 == __vt<V>::n) return V{(typename __vt<V>::E)a, (typename __vt<V>::E)r...};
    else {
      V v;
      int k = 0;
      __fill(v, k, a);
      (__fill(v, k, r), ...);
      return v;
    }
  }
}
template <class V> struct __cvt {
  template <class A> friend inline constexpr V operator->*(__cvt, A a) { return __mk1<V>(a); }
};
template <class To, class From> inline constexpr To as_type(From x) {
  static_assert(sizeof(To) == sizeof(From), "as_type: sizes differ");
  return __builtin_bit_cast(To, x);
}
template <class T> inline bfloat __tobf(T x) { return (bfloat)(float)x; }
}  // namespace metal
