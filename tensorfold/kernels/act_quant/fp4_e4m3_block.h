// One block of 16 as FP4 with an e4m3 scale: V values in each of 16 / V neighbouring lanes. Knows no layout.
#pragma once
#include "codes.h"

// e4m3 of max(max |v|, 6 * 2^-9) / 6, a true division, at most 448; 0x7f (NaN) where a value is not finite.
// The maximum is of bit patterns, so it has no order and NaN wins.
template <int V>  // neighbouring values that a lane holds; 16 / V lanes hold a block
P_FN uint fp4_e4m3_scale(const P_THREAD float* v) {
  uint top = p_bits(0.01171875f);
  for (int i = 0; i < V; i++) top = p_maxu(top, p_bits(v[i]) & 0x7fffffffu);
  for (int d = 8 / V; d > 0; d = d / 2) top = p_maxu(top, simd_shuffle_xor(top, ushort(d)));
  return top >= 0x7f800000u ? 0x7fu : p_to_e4m3(p_div(p_float(top), 6.0f));
}
// e2m1 of v over the scale, a true division; under a NaN scale a zero of v's sign
P_FN uint fp4_e4m3_code(float v, uint scale) {
  if (scale == 0x7fu) return (p_bits(v) >> 28) & 8u;
  return p_to_e2m1(p_div(v, p_e4m3(scale)));
}
// codes of the V neighbours from `at` (V even) into a packed row, K / 2 bytes of nibbles and K / 16 scales; the block's
// first lane writes its scale
template <
    int K,  // elements of a row
    int V>  // neighbouring values that a lane holds; 16 / V lanes hold a block
P_FN void fp4_e4m3_pack(P_DEV uchar* row, uint at, const P_THREAD float* v, uint scale) {
  for (int i = 0; i < V; i += 2) {
    row[(at + uint(i)) / 2u] = uchar(fp4_e4m3_code(v[i], scale) | (fp4_e4m3_code(v[i + 1], scale) << 4));
  }
  if (at % 16u == 0u) row[uint(K / 2) + at / 16u] = uchar(scale);
}
