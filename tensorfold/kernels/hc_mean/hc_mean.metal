// y = bf16(mean of N streams).
//
// Order: added in stream order in float32, each sum flushed, divided by N, one rounding.
// Threads: one an element; grid (D over threads, R rows).
#include "portable.h"

template <
    int D,  // elements of a stream
    int N>  // streams of a row
[[kernel]] void hc_mean(
    const device bfloat16_t* x,       // [R, N, D]
    device bfloat16_t* y,             // [R, D]
    uint3 thread_position_in_grid [[thread_position_in_grid]]) {
  uint d = thread_position_in_grid.x, row = thread_position_in_grid.y;
  if (d >= uint(D)) return;
  ulong at = ulong(row) * uint(N * D) + d;
  float total = p_load(x[at]);
  for (uint i = 1u; i < uint(N); i++) total = p_flush(p_add(total, p_load(x[at + i * uint(D)])));
  p_store(y + ulong(row) * uint(D) + d, p_div(total, float(N)));
}
