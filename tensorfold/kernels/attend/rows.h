// Packed rows of attention, decoded four elements at a time: window rows (e4m3 codes, a UE8M0 scale to 32 elements) and
// compressed rows (e2m1 nibbles, an e4m3 scale to 16). Codes first, then scales. Knows no cache.
#pragma once
#include "codes.h"

// Where the row at `place` begins: below `held` in the cache, else among this round's rows.
P_FN const P_DEV uchar* attend_row(const P_DEV uchar* cache, const P_DEV uchar* fresh, int held, int place, uint bytes) {
  return place < held ? cache + ulong(place) * bytes : fresh + ulong(place - held) * bytes;
}
// A window row's scale. Bytes below 96 count as scale zero (the quantiser writes none below 105): what is left, times a P of
// 2^-64 or more, stays far above the subnormal numbers.
P_FN float attend_window_scale(const P_DEV uchar* row, uint d, uint dim) {
  uint s = row[dim + d / 32u];
  return p_ue8m0(s < 96u ? 0u : s);
}
P_FN float attend_scale(const P_DEV uchar* row, uint d, uint dim, bool window) {
  return window ? attend_window_scale(row, d, dim) : p_e4m3(row[dim / 2u + d / 16u]);
}
// Elements d .. d + 3 times their scale, d a multiple of 4. WIDE: rows begin at multiples of 4 bytes.
template <bool WIDE>
P_FN void attend_quad(const P_DEV uchar* row, uint d, bool window, float scale, P_THREAD float* v) {
  if (window) {
    uint word;
    if (WIDE) {
      word = *(const P_DEV uint*)(row + d);
    } else {
      word = uint(row[d]) | (uint(row[d + 1u]) << 8) | (uint(row[d + 2u]) << 16) | (uint(row[d + 3u]) << 24);
    }
    #pragma unroll
    for (uint i = 0u; i < 4u; i++) v[i] = p_mul(p_e4m3(word >> (8u * i) & 255u), scale);
  } else {
    uint word = uint(row[d / 2u]) | (uint(row[d / 2u + 1u]) << 8);
    #pragma unroll
    for (uint i = 0u; i < 4u; i++) v[i] = p_mul(p_e2m1(word >> (4u * i) & 15u), scale);
  }
}
