// y = bf16(w * (x / sqrt(mean(x^2) + eps))) over the last axis, all in float32, one rounding.
//
// Order, from K alone: 256 running sums, sum i takes elements i, i + 256, ... by fma; groups of 32 sums are added at
// distances 16, 8, 4, 2, 1; the 8 groups as a tree, neighbours first.
// Threads: a threadgroup of 32 G threads owns one row; each of its G SIMD groups keeps 8 / G groups of sums.
#include "rms.h"

template <
    typename T,  // type of x: float or bfloat16_t
    int K,       // elements of a row
    int G>       // SIMD groups of a threadgroup
[[kernel]] void rms_norm(
    const device T* x,                // [R, K]
    const device bfloat16_t* w,       // [K]
    const constant float* eps,        // [1]
    device bfloat16_t* y,             // [R, K]
    uint3 threadgroup_position_in_grid [[threadgroup_position_in_grid]],
    uint thread_index_in_simdgroup [[thread_index_in_simdgroup]],
    uint simdgroup_index_in_threadgroup [[simdgroup_index_in_threadgroup]],
    uint thread_index_in_threadgroup [[thread_index_in_threadgroup]]) {
  P_SHARED float part[8];  // group sums of squares
  uint lane = thread_index_in_simdgroup;
  ulong row = ulong(threadgroup_position_in_grid.x) * uint(K);
  rms_sums<K, G>(x + row, simdgroup_index_in_threadgroup, lane, part);
  P_BARRIER();
  float r = rms_factor<K>(part, eps[0]);
  for (uint i = thread_index_in_threadgroup; i < uint(K); i += 32u * uint(G)) {
    p_store(y + row + i, rms_scaled(p_load(w[i]), p_load(x[row + i]), r));
  }
}
