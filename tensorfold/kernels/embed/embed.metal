// y = table[ids]: one row of the table a token, values as loaded (subnormals zero, one NaN). Ids are in range: the host
// has looked.
//
// Order: none, values are copied.
// Threads: one an element; grid (D over threads, R rows).
#include "portable.h"

template <int D>  // elements of a row
[[kernel]] void embed(
    const device int* ids,            // [R]
    const device bfloat16_t* table,   // [V, D]
    device bfloat16_t* y,             // [R, D]
    uint3 thread_position_in_grid [[thread_position_in_grid]]) {
  uint d = thread_position_in_grid.x, row = thread_position_in_grid.y;
  if (d >= uint(D)) return;
  p_store(y + ulong(row) * uint(D) + d, p_load(table[ulong(ids[row]) * uint(D) + d]));
}
