// Partial sums of the M products of a row with fn and, in place M, of its own square: part[c, m] over chunk c of 512
// elements. hc_mix adds the chunks.
//
// Order, inside a chunk: 32 running sums, sum i takes elements i, i + 32, ... by fma from zero; then at distances
// 16, 8, 4, 2, 1. Every sum is flushed.
// Threads: one SIMD group computes B neighbouring places of one chunk of one row; grid (blocks of places over G SIMD
// groups, R rows), the rows of a threadgroup share what they read of fn.
#include "hc_dots.h"

template <
    int K,  // elements of a row
    int M,  // products of a row, rows of fn
    int G,  // SIMD groups of a threadgroup
    int B>  // neighbouring places of a chunk that a SIMD group sums
[[kernel]] void hc_dots(
    const device bfloat16_t* x,       // [R, K]
    const device float* fn,           // [M, K]
    device float* part,               // [R, ceil(K / 512), M + 1]
    uint3 threadgroup_position_in_grid [[threadgroup_position_in_grid]],
    uint3 thread_position_in_threadgroup [[thread_position_in_threadgroup]],
    uint3 thread_position_in_grid [[thread_position_in_grid]],
    uint thread_index_in_simdgroup [[thread_index_in_simdgroup]]) {
  uint lane = thread_index_in_simdgroup, row = thread_position_in_grid.y;
  uint chunks = uint((K + 511) / 512), blocks = uint((M + B) / B);
  uint block = threadgroup_position_in_grid.x * uint(G) + (thread_position_in_threadgroup.x >> 5);
  if (block >= chunks * blocks) return;
  uint chunk = block / blocks, start = block % blocks * uint(B), first = chunk * 512u;
  ulong at = ulong(row) * uint(K);
  float acc[B];
  for (uint b = 0u; b < uint(B); b++) acc[b] = 0.0f;
  for (uint i = first + lane; i < p_minu(first + 512u, uint(K)); i += 32u) {
    float v = p_load(x[at + i]);
    float f[B];
    for (uint b = 0u; b < uint(B); b++) f[b] = start + b < uint(M) ? p_load(fn[ulong(start + b) * uint(K) + i]) : 0.0f;
    dots_term<M, B>(acc, f, v, start);
  }
  dots_write<M, B>(part + (ulong(row) * chunks + chunk) * uint(M + 1), acc, start, lane);
}
