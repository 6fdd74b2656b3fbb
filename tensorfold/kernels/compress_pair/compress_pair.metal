// Pools the two tokens of a group: y = c0 w0 + c1 w1, w the softmax of the gates (g0, g1) of each dimension. A token's
// place is below S in the slots' open pairs, else place - S in this round's rows.
//
// Order: m = max, e = exp(g - m), t = e0 + e1, w = e / t, both products rounded, then added; one rounding to bfloat16.
// Threads: a thread takes E elements, a threadgroup's width apart; grid (D over threads, M groups).
#include "maths.h"

template <
    int S,  // slots with an open pair: places below it are those
    int D,  // elements of a row
    int E>  // elements a thread takes, a threadgroup's width apart
[[kernel]] void compress_pair(
    const device float* opened,       // [S, 2, D]: value, gate
    const device float* own,          // [R, 2, D]: value, gate
    const device int* partner,        // [M, 2]
    device bfloat16_t* y,             // [M, D]
    uint3 threadgroup_position_in_grid [[threadgroup_position_in_grid]],
    uint3 thread_position_in_threadgroup [[thread_position_in_threadgroup]],
    uint3 threads_per_threadgroup [[threads_per_threadgroup]]) {
  uint row = threadgroup_position_in_grid.y, width = threads_per_threadgroup.x;
  uint first = threadgroup_position_in_grid.x * width * uint(E) + thread_position_in_threadgroup.x;
  float c[2], g[2];
  for (uint e = 0u; e < uint(E); e++) {
    uint d = first + e * width;
    if (d < uint(D)) {
      for (uint i = 0u; i < 2u; i++) {
        int place = partner[row * 2u + i];
        const P_DEV float* pair =
            place < S ? opened + ulong(place) * uint(2 * D) : own + ulong(place - S) * uint(2 * D);
        c[i] = p_load(pair[d]);
        g[i] = p_load(pair[uint(D) + d]);
      }
      float m = p_max(g[0], g[1]);
      float e0 = p_exp(p_sub(g[0], m)), e1 = p_exp(p_sub(g[1], m));
      float t = p_add(e0, e1);
      float w0 = p_flush(p_div(e0, t)), w1 = p_flush(p_div(e1, t));
      p_store(y + ulong(row) * uint(D) + d, p_add(p_mulz(c[0], w0), p_mulz(c[1], w1)));
    }
  }
}
