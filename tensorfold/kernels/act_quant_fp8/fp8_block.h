// One block of 32 as act_quant sees it: V values in each of 32 / V neighbouring lanes. Knows no layout.
#pragma once
#include "codes.h"

// UE8M0 byte of 2^ceil(log2(max(max |v|, 1e-4) / 448)), with the reciprocal rounded to float32; 255 (NaN) where a value is not
// finite. The maximum is of bit patterns, so it has no order and NaN wins.
template <int V>
P_FN uint fp8_scale(const P_THREAD float* v) {
  uint top = p_bits(0.0001f);
  for (int i = 0; i < V; i++) top = p_maxu(top, p_bits(v[i]) & 0x7fffffffu);
  for (int d = 16 / V; d > 0; d = d / 2) top = p_maxu(top, simd_shuffle_xor(top, ushort(d)));
  return p_ceil_ue8m0(p_mul(p_float(top), 0.00223214296f));
}
// e4m3 of v over the scale; under a NaN scale a zero of v's sign
P_FN uint fp8_code(float v, uint scale) {
  if (scale == 255u) return (p_bits(v) >> 24) & 0x80u;
  return p_to_e4m3(p_mul(v, p_inverse_ue8m0(scale)));
}
