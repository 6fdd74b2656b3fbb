// Floating-point functions, included once in each of metal, metal::precise and metal::fast. Knows no types.
#define MSL_MATH1_SCALAR(NAME, BUILTIN)                                        \
  inline float NAME(float x) { return BUILTIN(x); }                            \
  inline half NAME(half x) { return (half)BUILTIN((float)x); }                 \
  inline bfloat NAME(bfloat x) { return (bfloat)BUILTIN((float)x); }
#define MSL_MATH1_VECTOR(NAME)                                                 \
  template <class T, int N> inline vec<T, N> NAME(vec<T, N> x) {               \
    vec<T, N> r;                                                               \
    for (int i = 0; i < N; i++) r[i] = NAME(x[i]);                             \
    return r;                                                                  \
  }
#define MSL_MATH1(NAME, BUILTIN) MSL_MATH1_SCALAR(NAME, BUILTIN) MSL_MATH1_VECTOR(NAME)
#define MSL_MATH2_SCALAR(NAME, BUILTIN)                                        \
  inline float NAME(float x, float y) { return BUILTIN(x, y); }                \
  inline half NAME(half x, half y) { return (half)BUILTIN((float)x, (float)y); } \
  inline bfloat NAME(bfloat x, bfloat y) { return (bfloat)BUILTIN((float)x, (float)y); }
#define MSL_MATH2_VECTOR(NAME)                                                 \
  template <class T, int N> inline vec<T, N> NAME(vec<T, N> x, vec<T, N> y) {  \
    vec<T, N> r;                                                               \
    for (int i = 0; i < N; i++) r[i] = NAME(x[i], y[i]);                       \
    return r;                                                                  \
  }
#define MSL_MATH2(NAME, BUILTIN) MSL_MATH2_SCALAR(NAME, BUILTIN) MSL_MATH2_VECTOR(NAME)
#define MSL_MATH3(NAME, EXPR)                                                              \
  inline float NAME(float x, float y, float z) { return EXPR; }                            \
  inline half NAME(half a, half b, half c) { float x = a, y = b, z = c; return (half)(EXPR); } \
  inline bfloat NAME(bfloat a, bfloat b, bfloat c) { \
    float x = (float)a, y = (float)b, z = (float)c; \
    return (bfloat)(EXPR); \
  } \
  template <class T, int N> inline vec<T, N> NAME(vec<T, N> x, vec<T, N> y, vec<T, N> z) { \
    vec<T, N> r;                                                                           \
    for (int i = 0; i < N; i++) r[i] = NAME(x[i], y[i], z[i]);                             \
    return r;                                                                              \
  }
inline float __rsqrt(float x) { return 1.0f / __builtin_sqrtf(x); }
inline float __fract(float x) { return __builtin_fminf(x - __builtin_floorf(x), 0x1.fffffep-1f); }
inline float __sign(float x) { return x > 0 ? 1.0f : x < 0 ? -1.0f : x == 0 ? x : 0.0f; }
inline float __saturate(float x) { return __builtin_fminf(__builtin_fmaxf(x, 0.0f), 1.0f); }
inline float __divide(float x, float y) { return x / y; }
inline float __step(float e, float x) { return x < e ? 0.0f : 1.0f; }
MSL_MATH1(exp, __builtin_expf) MSL_MATH1(exp2, __builtin_exp2f) MSL_MATH1(exp10, __builtin_exp10f)
MSL_MATH1(log, __builtin_logf) MSL_MATH1(log2, __builtin_log2f) MSL_MATH1(log10, __builtin_log10f)
MSL_MATH1(sqrt, __builtin_sqrtf) MSL_MATH1(rsqrt, __rsqrt) MSL_MATH1(sin, __builtin_sinf)
MSL_MATH1(cos, __builtin_cosf) MSL_MATH1(tan, __builtin_tanf) MSL_MATH1(asin, __builtin_asinf)
MSL_MATH1(acos, __builtin_acosf) MSL_MATH1(atan, __builtin_atanf) MSL_MATH1(sinh, __builtin_sinhf)
MSL_MATH1(cosh, __builtin_coshf) MSL_MATH1(tanh, __builtin_tanhf) MSL_MATH1(asinh, __builtin_asinhf)
MSL_MATH1(acosh, __builtin_acoshf) MSL_MATH1(atanh, __builtin_atanhf) MSL_MATH1(floor, __builtin_floorf)
MSL_MATH1(ceil, __builtin_ceilf) MSL_MATH1(trunc, __builtin_truncf) MSL_MATH1(rint, __builtin_rintf)
MSL_MATH1(round, __builtin_roundf) MSL_MATH1(fabs, __builtin_fabsf) MSL_MATH1(abs, __builtin_fabsf)
MSL_MATH1(fract, __fract) MSL_MATH1(sign, __sign) MSL_MATH1(saturate, __saturate) MSL_MATH2(pow, __builtin_powf)
MSL_MATH2(powr, __builtin_powf) MSL_MATH2(atan2, __builtin_atan2f) MSL_MATH2(fmod, __builtin_fmodf)
MSL_MATH2(fmin, __builtin_fminf) MSL_MATH2(fmax, __builtin_fmaxf) MSL_MATH2(min, __builtin_fminf)
MSL_MATH2(max, __builtin_fmaxf) MSL_MATH2(copysign, __builtin_copysignf) MSL_MATH2(fdim, __builtin_fdimf)
MSL_MATH2(nextafter, __builtin_nextafterf) MSL_MATH2(divide, __divide) MSL_MATH2(step, __step)
MSL_MATH3(fma, __builtin_fmaf(x, y, z)) MSL_MATH3(clamp, __builtin_fminf(__builtin_fmaxf(x, y), z))
MSL_MATH3(mix, x + (y - x) * z) MSL_MATH3(max3, __builtin_fmaxf(x, __builtin_fmaxf(y, z)))
MSL_MATH3(min3, __builtin_fminf(x, __builtin_fminf(y, z)))
MSL_MATH3(median3, __builtin_fmaxf(__builtin_fminf(x, y), __builtin_fminf(__builtin_fmaxf(x, y), z)))
inline float ldexp(float x, int e) { return __builtin_ldexpf(x, e); }
inline float sincos(float x, thread float& c) { c = __builtin_cosf(x); return __builtin_sinf(x); }
inline float modf(float x, thread float& whole) {
  whole = __builtin_truncf(x);
  return __builtin_copysignf(__builtin_isinf(x) ? 0.0f : x - whole, x);
}
inline float frexp(float x, thread int& e) {
  int k;
  float m = __builtin_frexpf(x, (__generic int*)&k);
  e = k;
  return m;
}
#undef MSL_MATH1_SCALAR
#undef MSL_MATH1_VECTOR
#undef MSL_MATH1
#undef MSL_MATH2_SCALAR
#undef MSL_MATH2_VECTOR
#undef MSL_MATH2
#undef MSL_MATH3
