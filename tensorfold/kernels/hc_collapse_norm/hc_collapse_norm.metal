// h = bf16(sum over i of pre[i] * x[i]) over N streams; y = bf16(w * (h / sqrt(mean(h^2) + eps))), or h where not NORM.
//
// Order of the collapse: pre[0] x[0], then fma of the streams 1, 2, ..., each flushed; one rounding to bfloat16.
// Order of the norm, as in rms_norm: 256 running sums, sum i takes h[i], h[i + 256], ... by fma; groups of 32 sums are
// added at distances 16, 8, 4, 2, 1; the 8 groups as a tree, neighbours first.
// Threads: a threadgroup of 32 G threads owns one row; SIMD group s keeps the groups of sums s, s + G, ... below 8.
#include "hc_collapse.h"

template <
    int D,      // elements of a stream
    int N,      // streams of a row
    int G,      // SIMD groups of a threadgroup
    bool NORM>  // normed, else the sum alone
[[kernel]] void hc_collapse_norm(
    const device bfloat16_t* x,       // [R, N, D]
    const device float* pre,          // [R, N]
    const device bfloat16_t* w,       // [D]
    const constant float* eps,        // [1]
    device bfloat16_t* y,             // [R, D]
    uint3 threadgroup_position_in_grid [[threadgroup_position_in_grid]],
    uint thread_index_in_simdgroup [[thread_index_in_simdgroup]],
    uint simdgroup_index_in_threadgroup [[simdgroup_index_in_threadgroup]],
    uint thread_index_in_threadgroup [[thread_index_in_threadgroup]]) {
  P_SHARED ushort held[D];  // the collapsed row, as bfloat16 holds it
  P_SHARED float part[8];   // group sums of its squares
  uint lane = thread_index_in_simdgroup, row = threadgroup_position_in_grid.x;
  ulong at = ulong(row) * uint(N * D), own = ulong(row) * uint(D);
  // ---- the streams collapsed, rounded and kept
  float p[N];
  for (uint i = 0u; i < uint(N); i++) p[i] = p_load(pre[row * uint(N) + i]);
  for (uint d = thread_index_in_threadgroup; d < uint(D); d += 32u * uint(G)) {
    float v[N];
    for (uint i = 0u; i < uint(N); i++) v[i] = p_load(x[at + i * uint(D) + d]);
    float h = collapse<N>(p, v);
    if (NORM) held[d] = as_type<ushort>(p_f2bf(h));
    else p_store(y + own + d, h);
  }
  if (!NORM) return;
  // ---- normed
  float r = norm_factor<D, G>(held, part, eps[0], lane, simdgroup_index_in_threadgroup);
  for (uint d = thread_index_in_threadgroup; d < uint(D); d += 32u * uint(G)) {
    p_store(y + own + d, p_mul(p_load(w[d]), p_mul(p_float(uint(held[d]) << 16), r)));
  }
}
