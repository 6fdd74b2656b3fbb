// One block of 32 as act_quant sees it: V values in each of 32 / V neighbouring lanes. Knows no layout.
#pragma once
#include "codes.h"

// UE8M0 byte of 2^ceil(log2(max(max |v|, 1e-4) / 448)), with the reciprocal rounded to float32; 255 (NaN) where a value
// is not finite. The maximum is of bit patterns, so it has no order and NaN wins.
template <int V>  // neighbouring values that a lane holds; 32 / V lanes hold a block
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
// v to its code and back, exact
P_FN float fp8_value(float v, uint scale) { return p_mul(p_e4m3(fp8_code(v, scale)), p_ue8m0(scale)); }
// where element k of a row of K stands among its planes [4, K / 16, 4]
template <int K>  // elements of a row
P_FN uint fp8_plane(uint k) { return (k % 16u / 4u) * uint(K / 4) + k / 16u * 4u + k % 4u; }
// codes of the V neighbours from `at` into a packed row, K codes and K / 32 scales; the block's first lane writes its
// scale
template <
    int K,  // elements of a row
    int V>  // neighbouring values that a lane holds; 32 / V lanes hold a block
P_FN void fp8_pack(P_DEV uchar* row, uint at, const P_THREAD float* v, uint scale) {
  for (int i = 0; i < V; i++) row[at + uint(i)] = uchar(fp8_code(v[i], scale));
  if (at % 32u == 0u) row[uint(K) + at / 32u] = uchar(scale);
}
