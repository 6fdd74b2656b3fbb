// The streams' weighted sum and the norm's factor, in the orders hc_collapse_norm.metal states. Knows no layout of
// rows.
#pragma once
#include "portable.h"

// one element of N streams, weighted
template <int N>  // streams of a row
P_FN float collapse(const P_THREAD float* p, const P_THREAD float* v) {
  float h = p_mulz(p[0], v[0]);
  #pragma unroll
  for (int i = 1; i < N; i++) h = p_flush(p_fma(p[i], v[i], h));
  return h;
}
// 1 / sqrt(mean(h^2) + eps) of the D values held as bfloat16 bits, by a threadgroup of G SIMD groups; part has 8 places
template <
    int D,  // elements of a stream
    int G>  // SIMD groups of the threadgroup
P_FN float norm_factor(const P_TG ushort* held, P_TG float* part, float eps, uint lane, uint simd) {
  P_BARRIER();
  for (uint g = simd; g < 8u; g += uint(G)) {
    float acc = 0.0f;
    for (uint d = g * 32u + lane; d < uint(D); d += 256u) {
      float h = p_float(uint(held[d]) << 16);
      acc = p_fma(h, h, acc);
    }
    acc = p_lanesum(acc);
    if (lane == 0u) part[g] = acc;
  }
  P_BARRIER();
  float mean = p_div(p_treesum<8>(part), float(D));
  return p_div(1.0f, p_sqrt(p_add(mean, eps)));
}
