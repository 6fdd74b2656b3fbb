// y = bf16(e4m3 code * 2^scale), one scale every 32 codes: a product that bfloat16 holds exactly.
//
// Order: none, every step is exact.
// Threads: a thread decodes V neighbours of a row of W codes, P threadgroups share a row.
#include "codes.h"

template <
    int W,  // codes of a row
    int V,  // neighbours of a row that a thread decodes
    int P>  // threadgroups that share a row
[[kernel]] void engram_rows(
    const device uchar* codes,        // [R, W]
    const device uchar* scales,       // [R, W / 32]
    device bfloat16_t* y,             // [R, W]
    uint3 threadgroup_position_in_grid [[threadgroup_position_in_grid]],
    uint3 threads_per_threadgroup [[threads_per_threadgroup]],
    uint thread_index_in_threadgroup [[thread_index_in_threadgroup]]) {
  ulong row = threadgroup_position_in_grid.x / uint(P);
  uint part = threadgroup_position_in_grid.x % uint(P);
  uint at = (part * threads_per_threadgroup.x + thread_index_in_threadgroup) * uint(V);
  if (at >= uint(W)) return;
  float scale = p_ue8m0(scales[row * uint(W / 32) + at / 32u]);
  for (int i = 0; i < V; i++) {
    ulong index = row * uint(W) + at + uint(i);
    p_store(y + index, p_mul(p_e4m3(codes[index]), scale));
  }
}
