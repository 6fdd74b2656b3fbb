// exp, log and their kin in one stated order of operations: 2 ulp over the whole range, equal bits on every device.
// Knows no kernel. Subnormal arguments count as zero; no result is subnormal.
#pragma once
#include "portable.h"

// v * 2^n in two exact steps, n in -127..129
P_FN float p_scale2(float v, int n) {
  int h = n >> 1;
  return p_mul(p_mul(v, p_float(uint(h + 127) << 23)), p_float(uint(n - h + 127) << 23));
}
// 0 below -87, inf above 88.72284, NaN for NaN
P_FN float p_exp(float x) {
  bool inside = x >= -87.0f && x <= 88.72284f;
  float v = inside ? x : 0.0f;
  float n = p_rint(p_mul(v, 1.44269504f));
  float r = p_fma(n, 2.12194440e-4f, p_fma(n, -0.693359375f, v));
  float p = p_fma(0.0013814539f, r, 0.0083687454f);
  p = p_fma(p, r, 0.041668389f);
  p = p_fma(p, r, 0.16666521f);
  p = p_fma(p, r, 0.49999994f);
  float y = p_scale2(p_add(1.0f, p_fma(p_mul(r, r), p, r)), int(n));
  y = x < -87.0f ? 0.0f : x > 88.72284f ? p_inf() : y;
  return p_isnan(x) ? x : y;
}
// log(1 + f) = f - (half - tail): half = f^2 / 2, tail = s (half + R(s^2)), s = f / (2 + f)
P_FN float p_log_half_(float f) { return p_mul(p_mul(0.5f, f), f); }
P_FN float p_log_tail_(float f) {
  float s = p_div(f, p_add(2.0f, f)), z = p_mul(s, s);
  float p = p_fma(p_fma(0.29873073f, z, 0.39977497f), z, 0.66666776f);
  return p_mul(s, p_add(p_log_half_(f), p_mul(z, p)));
}
// -inf for zeros, NaN below zero and for NaN, inf for inf
P_FN float p_log(float x) {
  x = p_flush(x);
  bool inside = x > 0.0f && x < p_inf();
  uint u = p_bits(inside ? x : 1.0f) - 0x3f3504f3u;
  float k = float(as_type<int>(u) >> 23);
  float f = p_sub(p_float((u & 0x007fffffu) + 0x3f3504f3u), 1.0f);
  float low = p_sub(p_log_half_(f), p_fma(k, -2.12194440e-4f, p_log_tail_(f)));
  float y = p_fma(k, 0.693359375f, p_sub(f, low));
  y = x == 0.0f ? p_neg(p_inf()) : x == p_inf() ? x : y;
  return x < 0.0f || p_isnan(x) ? p_nan() : y;
}
// x for tiny x, -inf at -1, NaN below -1 and for NaN, inf for inf
P_FN float p_log1p(float x) {
  x = p_flush(x);
  bool inside = x > -1.0f && x < p_inf();
  float v = inside ? x : 0.0f;
  bool near = v > -0.29289323f && v < 0.41421354f;
  float w = p_add(1.0f, v);
  float lost = v >= 1.0f ? p_sub(1.0f, p_sub(w, v)) : p_sub(v, p_sub(w, 1.0f));
  lost = near ? 0.0f : p_div(lost, w);
  uint u = p_bits(w) - 0x3f3504f3u;
  float k = near ? 0.0f : float(as_type<int>(u) >> 23);
  float f = near ? v : p_sub(p_float((u & 0x007fffffu) + 0x3f3504f3u), 1.0f);
  float low = p_sub(p_log_half_(f), p_add(p_log_tail_(f), p_fma(k, -2.12194440e-4f, lost)));
  float y = p_fma(k, 0.693359375f, p_sub(f, low));
  y = p_abs(v) < 2.98023224e-8f ? v : y;
  y = x == -1.0f ? p_neg(p_inf()) : x == p_inf() ? x : y;
  return x < -1.0f || p_isnan(x) ? p_nan() : y;
}
// 1 / (1 + e^-x): 0 below -87, NaN for NaN; the rounding of 1 + e is carried along
P_FN float p_sigmoid(float x) {
  float e = p_exp(p_neg(p_abs(x)));
  float d = p_add(1.0f, e), lost = p_sub(e, p_sub(d, 1.0f));
  float inverse = p_div(1.0f, d);
  inverse = p_fma(p_fma(p_neg(inverse), lost, p_fma(p_neg(inverse), d, 1.0f)), inverse, inverse);
  float q = p_mul(e, inverse);
  q = p_fma(p_fma(p_neg(q), lost, p_fma(p_neg(q), d, e)), inverse, q);
  float small = x < -18.0f ? e : q;
  return p_isnan(x) ? x : x < 0.0f ? small : inverse;
}
P_FN float p_silu(float x) { return p_mul(x, p_sigmoid(x)); }
// log(1 + e^x): x above 20, 0 below -87, NaN for NaN
P_FN float p_softplus(float x) {
  float y = p_log1p(p_exp(x > 20.0f ? 0.0f : x));
  return p_isnan(x) || x > 20.0f ? x : y;
}
