// The best of a row's parts: the largest key, ties to the lower token; finite where no part holds a flaw.
//
// Order: none, everything is an integer.
// Threads: a SIMD group owns a row, a lane the parts lane, lane + 32, ...
#include "portable.h"

template <int COUNT>  // parts of a row
[[kernel]] void pick(
    const device uint* parts,         // [R, COUNT, 3]: key, token, flaw
    device int* ids,                  // [R]
    device bool* finite,              // [R]
    uint3 threadgroup_position_in_grid [[threadgroup_position_in_grid]],
    uint thread_index_in_simdgroup [[thread_index_in_simdgroup]]) {
  ulong row = threadgroup_position_in_grid.x;
  uint lane = thread_index_in_simdgroup;
  uint best = 0u, at = 0u, flaw = 0u;
  for (uint i = lane; i < uint(COUNT); i += 32u) {
    ulong from = (row * uint(COUNT) + i) * 3u;
    uint key = parts[from], token = parts[from + 1u];
    at = key > best ? token : at;
    best = p_maxu(best, key);
    flaw = flaw | parts[from + 2u];
  }
  uint top = p_lanemaxu(best);
  at = ~p_lanemaxu(best == top ? ~at : 0u);
  flaw = p_laneor(flaw);
  if (lane == 0u) {
    ids[row] = int(at);
    finite[row] = flaw == 0u;
  }
}
