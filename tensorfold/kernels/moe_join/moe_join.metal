// y = bf16(sum of K experts' rows, in the order given, then the shared expert's).
// Layers launch moe_leave, which spreads the sum at once; this is a backend's `joined`.
//
// Order: as said, float32, each sum flushed, one rounding.
// Threads: one an element; grid (D over threads, R rows).
#include "moe_join.h"

template <
    int D,  // elements of a row
    int K>  // routed experts of a row
[[kernel]] void moe_join(
    const device bfloat16_t* routed,  // [R, K, D], ascending expert id
    const device bfloat16_t* shared,  // [R, D]
    device bfloat16_t* y,             // [R, D]
    uint3 thread_position_in_grid [[thread_position_in_grid]]) {
  uint d = thread_position_in_grid.x, row = thread_position_in_grid.y;
  if (d >= uint(D)) return;
  ulong at = ulong(row) * uint(K * D) + d, own = ulong(row) * uint(D) + d;
  p_store(y + own, joined<K>(routed + at, uint(D), p_load(shared[own])));
}
