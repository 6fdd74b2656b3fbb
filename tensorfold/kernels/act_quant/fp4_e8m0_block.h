// One block of 32 as FP4 with a power-of-two scale: V values in each of 32 / V neighbouring lanes. Knows no layout.
#pragma once
#include "codes.h"

// UE8M0 byte of 2^ceil(log2(max(max |v|, 6 * 2^-126) / 6)), with the reciprocal rounded to float32; 255 (NaN) where a
// value is not finite. The maximum is of bit patterns, so it has no order and NaN wins.
template <int V>  // neighbouring values that a lane holds; 32 / V lanes hold a block
P_FN uint fp4_e8m0_scale(const P_THREAD float* v) {
  uint top = 0x01c00000u;
  for (int i = 0; i < V; i++) top = p_maxu(top, p_bits(v[i]) & 0x7fffffffu);
  for (int d = 16 / V; d > 0; d = d / 2) top = p_maxu(top, simd_shuffle_xor(top, ushort(d)));
  return p_ceil_ue8m0(p_mul(p_float(top), 0.166666672f));
}
// e2m1 of v over the scale; under a NaN scale a zero of v's sign
P_FN uint fp4_e8m0_code(float v, uint scale) {
  if (scale == 255u) return (p_bits(v) >> 28) & 8u;
  return p_to_e2m1(p_mul(v, p_inverse_ue8m0(scale)));
}
// codes of the V neighbours from `at` (V even) into a packed row, K / 2 bytes of nibbles and K / 32 scales; the block's
// first lane writes its scale
template <
    int K,  // elements of a row
    int V>  // neighbouring values that a lane holds; 32 / V lanes hold a block
P_FN void fp4_e8m0_pack(P_DEV uchar* row, uint at, const P_THREAD float* v, uint scale) {
  for (int i = 0; i < V; i += 2) {
    row[(at + uint(i)) / 2u] = uchar(fp4_e8m0_code(v[i], scale) | (fp4_e8m0_code(v[i + 1], scale) << 4));
  }
  if (at % 32u == 0u) row[uint(K / 2) + at / 32u] = uchar(scale);
}
