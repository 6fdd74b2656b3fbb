// y = bf16(w * (x / sqrt(mean(x^2) + eps))) over the last axis, all in float32, one rounding.
//
// Order, from K alone: 256 running sums, sum i takes elements i, i + 256, ... by fma; groups of 32 sums are added at
// distances 16, 8, 4, 2, 1; the 8 groups as a tree, neighbours first. A threadgroup of 32 G threads owns one row,
// each of its G SIMD groups keeps 8 / G groups of sums.
#include "portable.h"

template <typename T, int K, int G>
[[kernel]] void rms_norm(
    const device T* x,                // [R, K]
    const device bfloat16_t* w,       // [K]
    const constant float* eps,        // [1]
    device bfloat16_t* y,             // [R, K]
    uint3 threadgroup_position_in_grid [[threadgroup_position_in_grid]],
    uint thread_index_in_simdgroup [[thread_index_in_simdgroup]],
    uint simdgroup_index_in_threadgroup [[simdgroup_index_in_threadgroup]],
    uint thread_index_in_threadgroup [[thread_index_in_threadgroup]]) {
  P_SHARED float part[8];
  uint lane = thread_index_in_simdgroup;
  ulong row = ulong(threadgroup_position_in_grid.x) * uint(K);
  for (uint g = simdgroup_index_in_threadgroup; g < 8u; g += uint(G)) {
    float acc = 0.0f;
    for (uint i = g * 32u + lane; i < uint(K); i += 256u) {
      float v = p_load(x[row + i]);
      acc = p_fma(v, v, acc);
    }
    acc = p_lanesum(acc);
    if (lane == 0u) part[g] = acc;
  }
  P_BARRIER();
  float mean = p_div(p_treesum<8>(part), float(K));
  float r = p_div(1.0f, p_sqrt(p_add(mean, eps[0])));
  for (uint i = thread_index_in_threadgroup; i < uint(K); i += 32u * uint(G)) {
    p_store(y + row + i, p_mul(p_load(w[i]), p_mul(p_load(x[row + i]), r)));
  }
}
