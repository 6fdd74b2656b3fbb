// How partial products of a chunk of a row are summed, in the order hc_dots.metal states. Knows no layout of rows.
#pragma once
#include "portable.h"

P_FN float flushed_lanesum(float v) {
  v = p_flush(p_add(v, simd_shuffle_xor(v, ushort(16))));
  v = p_flush(p_add(v, simd_shuffle_xor(v, ushort(8))));
  v = p_flush(p_add(v, simd_shuffle_xor(v, ushort(4))));
  v = p_flush(p_add(v, simd_shuffle_xor(v, ushort(2))));
  return p_flush(p_add(v, simd_shuffle_xor(v, ushort(1))));
}
// one more term of the sums of B neighbouring places; from place M on the factor is the element itself
template <
    int M,  // products of a row; place M is its square
    int B>  // neighbouring places of a chunk that a SIMD group sums
P_FN void dots_term(P_THREAD float* acc, const P_THREAD float* f, float v, uint start) {
  #pragma unroll
  for (uint b = 0u; b < uint(B); b++) acc[b] = p_flush(p_fma(v, start + b < uint(M) ? f[b] : v, acc[b]));
}
// the 32 lanes of B sums added; place M is the last
template <
    int M,  // products of a row; place M is its square
    int B>  // neighbouring places of a chunk that a SIMD group sums
P_FN void dots_write(P_DEV float* part, const P_THREAD float* acc, uint start, uint lane) {
  for (uint b = 0u; b < uint(B); b++) {
    float total = flushed_lanesum(acc[b]);
    if (lane == 0u && start + b <= uint(M)) p_store(part + start + b, total);
  }
}
// a lane's 16 factors of each of B places in the chunk of 512 from `first`; beyond the row and the last place zero
template <
    int M,  // products of a row; place M is its square
    int B,  // neighbouring places of a chunk that a SIMD group sums
    int K>  // elements of a row
P_FN void dots_factors(const P_DEV float* fn, P_THREAD float* f, uint start, uint first, uint lane) {
  #pragma unroll
  for (uint k = 0u; k < 16u; k++) {
    uint i = first + k * 32u + lane;
    #pragma unroll
    for (uint b = 0u; b < uint(B); b++) {
      f[k * uint(B) + b] = i < uint(K) && start + b < uint(M) ? p_load(fn[ulong(start + b) * uint(K) + i]) : 0.0f;
    }
  }
}
