// y = w2 x of the experts each row goes to, an input a pair, FP4 read where it lies, rounded once to bfloat16; one launch.
// The order of sums and who computes what stand in experts_rows.h. Grid: tiles of w2 by pairs (row, pick).
#include "experts.h"

template <typename X, int K, int N, int LK, int W, int WN, int TN, int PF, int RG>
[[kernel]] void experts_down(
    const device X* x,                // bfloat16 [R, PICKS, K] or float [R, PICKS, 4, K / 16, 4], exact
    const device int* ids,            // [R, PICKS]
    const device uchar* shard,        // bytes
    const device ulong* place,        // [E, 1, 2]: (codes, scales) of w2, bytes from the start of the file
    const constant ulong* origin,     // [1]: where in the file the shard's first byte lies
    device bfloat16_t* y,             // [R, PICKS, N]
    uint3 threadgroup_position_in_grid [[threadgroup_position_in_grid]],
    uint3 threadgroups_per_grid [[threadgroups_per_grid]],
    uint thread_index_in_simdgroup [[thread_index_in_simdgroup]],
    uint simdgroup_index_in_threadgroup [[simdgroup_index_in_threadgroup]]) {
  const uint matrices = 1u, share = 1u, matrix = 0u;
  uint pairs = threadgroups_per_grid.y, pair = threadgroup_position_in_grid.y, tile = threadgroup_position_in_grid.x;
#include "experts_rows.h"
}
