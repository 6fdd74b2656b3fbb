// act_quant_fp8 as one packed row: K codes, then K / 32 scale bytes.
// Launched by no model, but judged by itself: alone.py says why.
//
// Order: none, every step is exact.
// Threads: a thread holds V neighbours of a row, P threadgroups share a row; threads past its end only take part in
// shuffles.
#include "act_quant/fp8_block.h"

template <
    int K,  // elements of a row
    int V,  // neighbours of a row that a thread holds
    int P>  // threadgroups that share a row
[[kernel]] void act_quant_fp8_pack(
    const device bfloat16_t* x,       // [N, K]
    device uchar* packed,             // [N, K + K / 32]
    uint3 threadgroup_position_in_grid [[threadgroup_position_in_grid]],
    uint3 threads_per_threadgroup [[threads_per_threadgroup]],
    uint thread_index_in_threadgroup [[thread_index_in_threadgroup]]) {
  ulong row = threadgroup_position_in_grid.x / uint(P);
  uint part = threadgroup_position_in_grid.x % uint(P);
  uint at = (part * threads_per_threadgroup.x + thread_index_in_threadgroup) * uint(V);
  float v[V];
  for (int i = 0; i < V; i++) v[i] = at < uint(K) ? p_load(x[row * uint(K) + at + uint(i)]) : 0.0f;
  uint scale = fp8_scale<V>(v);
  if (at >= uint(K)) return;
  fp8_pack<K, V>(packed + row * uint(K + K / 32), at, v, scale);
}
