// FP8 (e4m3), FP4 (e2m1) and power-of-two scale (UE8M0) codes: exact decoders, round-to-nearest-even encoders. Knows no
// layout.
#pragma once
#include "portable.h"

// e4m3: 0x7f and 0xff are NaN, largest 448; no float32 subnormal is formed
P_FN float p_e4m3(uint u) {
  uint m = u & 0x7fu;
  float a = m >= 8u ? p_float((m << 20) + 0x3c000000u) : p_mul(float(m), 0.001953125f);
  uint r = m == 0x7fu ? 0x7fc00000u : p_bits(a);
  return p_float(r | ((u & 0x80u) << 24));
}
// e2m1: 0, .5, 1, 1.5, 2, 3, 4, 6, bit 3 the sign
P_FN float p_e2m1(uint v) {
  uint m = v & 7u;
  uint b = m >= 2u ? (m << 22) + 0x3f000000u : m * 0x3f000000u;
  return p_float(b | ((v & 8u) << 28));
}
// UE8M0: 2^(byte - 127); byte 0 is scale zero, 255 is NaN
P_FN float p_ue8m0(uint s) { return p_float(s == 255u ? 0x7fc00000u : s << 23); }

// Clamped to 448; NaN is 0x7f.
P_FN uint p_to_e4m3(float x) {
  uint u = p_bits(x) & 0x7fffffffu, sign = (p_bits(x) >> 24) & 0x80u;
  if (u > 0x7f800000u) return 0x7fu;
  if (u < 0x3c800000u) return uint(p_rint(p_mul(p_float(u), 512.0f))) | sign;
  u = p_minu(u, 0x43e00000u);
  return (((u + 0x7ffffu + ((u >> 20) & 1u)) >> 20) - 960u) | sign;
}
// Clamped to 6, ties to the even code; the caller's scale carries NaN, a NaN here is code 7.
P_FN uint p_to_e2m1(float x) {
  uint u = p_bits(x) & 0x7fffffffu, sign = (p_bits(x) >> 28) & 8u;
  uint code = uint(u > 0x3e800000u) + uint(u >= 0x3f400000u) + uint(u > 0x3fa00000u) + uint(u >= 0x3fe00000u) +
              uint(u > 0x40200000u) + uint(u >= 0x40600000u) + uint(u > 0x40a00000u);
  return code | sign;
}
// The UE8M0 byte of the smallest power of two >= a, for a normal, infinite (255) or NaN (255).
P_FN uint p_ceil_ue8m0(float a) {
  uint u = p_bits(a) & 0x7fffffffu;
  return p_minu((u >> 23) + ((u & 0x7fffffu) != 0u ? 1u : 0u), 255u);
}
// 2^(127 - byte): exact reciprocal of a scale of byte 1..253
P_FN float p_inverse_ue8m0(uint s) { return p_float((254u - s) << 23); }
