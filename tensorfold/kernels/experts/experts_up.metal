// gate = w1 x and up = w3 x of the experts each row goes to, FP4 read where it lies, rounded once to bfloat16; one
// launch.
//
// Order, and who computes what: experts_rows.h. Grid: tiles of w1, then of w3, by pairs (row, pick).
#include "experts.h"

template <
    typename X,  // type of x: float planes or bfloat16 rows
    int K,       // columns of a matrix: elements of a row of x
    int N,       // rows of a matrix
    int PICKS,   // experts a row goes to
    int LK,      // lanes that share a row's running sums: as many sums
    int W,       // bytes a load of codes may take: 4, 8 or 16
    int WN,      // SIMD groups of a threadgroup, on other rows of a matrix
    int TN,      // neighbouring rows of a matrix a lane sums
    int PF,      // blocks of each loaded at a time
    int RG>      // pairs of one expert that share a read of a weight
[[kernel]] void experts_up(
    const device X* x,                // bfloat16 [R, K] or float [R, 4, K / 16, 4], exact
    const device int* ids,            // [R, PICKS]
    const device uchar* shard,        // bytes
    const device ulong* place,        // [E, 2, 2]: (w1, w3) by (codes, scales), bytes from the start of the file
    const constant ulong* origin,     // [1]: where in the file the shard's first byte lies
    device bfloat16_t* gate,          // [R, PICKS, N]
    device bfloat16_t* up,            // [R, PICKS, N]
    uint3 threadgroup_position_in_grid [[threadgroup_position_in_grid]],
    uint3 threadgroups_per_grid [[threadgroups_per_grid]],
    uint thread_index_in_simdgroup [[thread_index_in_simdgroup]],
    uint simdgroup_index_in_threadgroup [[simdgroup_index_in_threadgroup]]) {
  const uint matrices = 2u, share = uint(PICKS);
  uint tiles = threadgroups_per_grid.x / matrices;
  uint matrix = threadgroup_position_in_grid.x / tiles, tile = threadgroup_position_in_grid.x % tiles;
  uint pairs = threadgroups_per_grid.y, pair = threadgroup_position_in_grid.y;
  P_DEV bfloat16_t* y = matrix == 0u ? gate : up;
#include "experts_rows.h"
}
