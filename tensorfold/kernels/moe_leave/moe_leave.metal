// What stands after the experts, in one launch: their outputs and the shared one's joined, and spread over the streams.
//
// Order: moe_join's with its one rounding to bfloat16, then hc_post's; the headers of the two do the work.
// Threads: a thread takes E elements, a threadgroup's width apart; grid (D over threads, R rows).
#include "hc_post/hc_post.h"
#include "moe_join/moe_join.h"

template <
    int D,  // elements of a stream
    int N,  // streams of a row
    int K,  // routed experts of a row
    int E>  // elements a thread takes, a threadgroup's width apart
[[kernel]] void moe_leave(
    const device bfloat16_t* routed,  // [R, K, D], ascending expert id
    const device bfloat16_t* shared,  // [R, D]
    const device bfloat16_t* x,       // [R, N, D]
    const device float* post,         // [R, N]
    const device float* comb,         // [R, N, N]
    device bfloat16_t* out,           // [R, N, D]
    uint3 threadgroup_position_in_grid [[threadgroup_position_in_grid]],
    uint3 thread_position_in_threadgroup [[thread_position_in_threadgroup]],
    uint3 threads_per_threadgroup [[threads_per_threadgroup]]) {
  uint row = threadgroup_position_in_grid.y, width = threads_per_threadgroup.x;
  uint first = threadgroup_position_in_grid.x * width * uint(E) + thread_position_in_threadgroup.x;
  ulong at = ulong(row) * uint(N * D), mix = ulong(row) * uint(N * N);
  float c[N * N], p[N];
  for (uint i = 0u; i < uint(N * N); i++) c[i % uint(N) * uint(N) + i / uint(N)] = p_load(comb[mix + i]);
  for (uint j = 0u; j < uint(N); j++) p[j] = p_load(post[row * uint(N) + j]);
  for (uint e = 0u; e < uint(E); e++) {
    uint d = first + e * width;
    if (d < uint(D)) {
      float v[N];
      for (uint i = 0u; i < uint(N); i++) v[i] = p_load(x[at + i * uint(D) + d]);
      float last = p_load(shared[ulong(row) * uint(D) + d]);
      float own = p_round_bf(joined<K>(routed + ulong(row) * uint(K * D) + d, uint(D), last));
      #pragma unroll
      for (uint j = 0u; j < uint(N); j++) p_store(out + at + j * uint(D) + d, spread<N>(c + j * uint(N), v, p[j], own));
    }
  }
}
