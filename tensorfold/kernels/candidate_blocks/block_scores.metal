// The best visible score of each block of BLOCK columns; +inf for the block of the newest visible one; NaN for a block
// with no visible column or with a NaN.
//
// Order: none, a maximum has none.
// Threads: one a block; grid (blocks, R rows).
#include "portable.h"

template <int BLOCK>  // columns of a block
[[kernel]] void block_scores(
    const device float* scores,       // [R, C]
    const device int* visible,        // [R]
    const constant int* columns,      // [1]: C
    device float* best,               // [R, ceil(C / BLOCK)]
    uint3 threadgroup_position_in_grid [[threadgroup_position_in_grid]],
    uint3 thread_position_in_threadgroup [[thread_position_in_threadgroup]],
    uint3 threads_per_threadgroup [[threads_per_threadgroup]]) {
  uint row = threadgroup_position_in_grid.y;
  uint block = threadgroup_position_in_grid.x * threads_per_threadgroup.x + thread_position_in_threadgroup.x;
  uint c = uint(columns[0]), blocks = (c + uint(BLOCK) - 1u) / uint(BLOCK);
  if (block >= blocks) return;
  uint n = p_minu(uint(visible[row] < 0 ? 0 : visible[row]), c), first = block * uint(BLOCK);
  uint last = p_minu(first + uint(BLOCK), n);
  float top = first < last ? p_neg(p_inf()) : p_nan();
  for (uint i = first; i < last; i++) {
    float v = p_load(scores[ulong(row) * c + i]);
    top = p_isnan(v) ? v : p_max(top, v);
  }
  top = first < n && n <= first + uint(BLOCK) ? p_inf() : top;
  p_store(best + ulong(row) * blocks + block, p_add(top, 0.0f));
}
