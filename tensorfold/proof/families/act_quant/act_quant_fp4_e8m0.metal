// e2m1 nibbles and UE8M0 scale bytes of every block of 32 along the last axis.
// Launched by no model, but judged by itself: alone.py says why.
//
// Order: none, every step is exact.
// Threads: a thread holds V neighbours of a row, P threadgroups share a row; threads past its end only take part in
// shuffles.
#include "act_quant/fp4_e8m0_block.h"

template <
    int K,  // elements of a row
    int V,  // neighbours of a row that a thread holds, an even number
    int P>  // threadgroups that share a row
[[kernel]] void act_quant_fp4_e8m0(
    const device bfloat16_t* x,       // [N, K]
    device uchar* codes,              // [N, K / 2]: even elements in the low nibbles
    device uchar* scales,             // [N, K / 32]
    uint3 threadgroup_position_in_grid [[threadgroup_position_in_grid]],
    uint3 threads_per_threadgroup [[threads_per_threadgroup]],
    uint thread_index_in_threadgroup [[thread_index_in_threadgroup]]) {
  ulong row = threadgroup_position_in_grid.x / uint(P);
  uint part = threadgroup_position_in_grid.x % uint(P);
  uint at = (part * threads_per_threadgroup.x + thread_index_in_threadgroup) * uint(V);
  float v[V];
  for (int i = 0; i < V; i++) v[i] = at < uint(K) ? p_load(x[row * uint(K) + at + uint(i)]) : 0.0f;
  uint scale = fp4_e8m0_scale<V>(v);
  if (at >= uint(K)) return;
  for (int i = 0; i < V; i += 2) {
    uint pair = fp4_e8m0_code(v[i], scale) | (fp4_e8m0_code(v[i + 1], scale) << 4);
    codes[row * uint(K / 2) + (at + uint(i)) / 2u] = uchar(pair);
  }
  if (at % 32u == 0u) scales[row * uint(K / 32) + at / 32u] = uchar(scale);
}
