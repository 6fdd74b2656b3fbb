// RMSNorm of one row of K elements by a threadgroup of G SIMD groups, in the order rms_norm.metal states. Knows no
// layout.
#pragma once
#include "portable.h"

// this SIMD group's share of the 8 group sums of squares; a barrier, then `rms_factor`
template <
    int K,       // elements of a row
    int G,       // SIMD groups of the threadgroup
    typename T>  // type of x
P_FN void rms_sums(const P_DEV T* x, uint group, uint lane, P_TG float* part) {
  for (uint g = group; g < 8u; g += uint(G)) {
    float acc = 0.0f;
    for (uint i = g * 32u + lane; i < uint(K); i += 256u) {
      float v = p_load(x[i]);
      acc = p_fma(v, v, acc);
    }
    acc = p_lanesum(acc);
    if (lane == 0u) part[g] = acc;
  }
}
// 1 / sqrt(mean(x^2) + eps)
template <int K>  // elements of a row
P_FN float rms_factor(const P_TG float* part, float eps) {
  float mean = p_div(p_treesum<8>(part), float(K));
  return p_div(1.0f, p_sqrt(p_add(mean, eps)));
}
// one element, not yet rounded
P_FN float rms_scaled(float w, float x, float factor) { return p_mul(w, p_mul(x, factor)); }
