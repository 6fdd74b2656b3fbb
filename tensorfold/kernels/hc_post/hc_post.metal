// out[j] = bf16(post[j] * y + sum over i of comb[i, j] * x[i]) for each of N streams j, float32, one rounding.
// Layers launch hc_post_dots and moe_leave; this is a backend's hc_leave where neither fits.
//
// Order: comb[0, j] x[0], then fma of the streams 1, 2, ...; the product post[j] y is added last. Everything flushed.
// Threads: a thread takes E elements, a threadgroup's width apart; grid (D over threads, R rows).
#include "hc_post.h"

template <
    int D,  // elements of a stream
    int N,  // streams of a row
    int E>  // elements a thread takes, a threadgroup's width apart
[[kernel]] void hc_post(
    const device bfloat16_t* y,       // [R, D]
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
      float own = p_load(y[ulong(row) * uint(D) + d]);
      float v[N];
      for (uint i = 0u; i < uint(N); i++) v[i] = p_load(x[at + i * uint(D) + d]);
      #pragma unroll
      for (uint j = 0u; j < uint(N); j++) p_store(out + at + j * uint(D) + d, spread<N>(c + j * uint(N), v, p[j], own));
    }
  }
}
