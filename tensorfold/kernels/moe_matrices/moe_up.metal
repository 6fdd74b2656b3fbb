// w1 x and w3 x of the experts each row goes to and of the shared expert, one launch. Names that end in 8 belong to the
// shared expert's FP8 part, the others to the routed experts' FP4 part.
//
// Order: those of experts_up (experts_rows.h) and of matvec_fp8_pair (fp8.h and tile.h), whose bits these are.
// Threads: grid (threadgroups of a row, rows). Of a row's threadgroups the first take the tiles of its picks' matrices,
// pick by pick; the others of all rows, numbered through, take the shared matrices' tiles by groups of R rows; the last
// few may be idle.
#include "experts/experts.h"
#include "shared_tile.h"

template <
    int K,      // columns of every matrix: elements of a row of x
    int N,      // rows of a routed matrix
    int PICKS,  // experts a row goes to
    int LK,     // lanes that share a row's running sums: as many sums
    int W,      // bytes a load of codes may take: 4, 8 or 16
    int WN,     // SIMD groups of a threadgroup, on other rows of a matrix
    int TN,     // neighbouring rows of a matrix a lane sums
    int PF,     // blocks of each loaded at a time
    int RG,     // pairs of one expert that share a read of a weight
    int J,      // FP8: rows of a shared matrix
    int R,      // rows of the shared expert's x a threadgroup takes at once
    int LK8,    // FP8: lanes that share a row's running sums
    int SW8,    // FP8: SIMD groups that share them
    int WN8,    // FP8: SIMD groups side by side on other rows
    int TN8,    // FP8: neighbouring rows a lane sums
    int PF8,    // FP8: chunks of each loaded at a time
    int DB8,    // FP8: 1: the next ones are loaded before these are summed
    int W8>     // FP8: bytes a load may take: 8 or 16
[[kernel]] void moe_up(
    const device float* x,            // [R, 4, K / 16, 4], exact
    const device int* ids,            // [R, PICKS]
    const device uchar* shard,        // bytes
    const device ulong* place,        // [E, 2, 2]: (w1, w3) by (codes, scales), bytes from the start of the file
    const constant ulong* origin,     // [1]: where in the file the shard's first byte lies
    const device uchar* w1,           // [J, K]
    const device uchar* s1,           // [ceil(J / 32), K / 32]
    const device uchar* w3,           // [J, K]
    const device uchar* s3,           // [ceil(J / 32), K / 32]
    device bfloat16_t* gate,          // [R, PICKS, N]
    device bfloat16_t* up,            // [R, PICKS, N]
    device bfloat16_t* shared_gate,   // [R, J]
    device bfloat16_t* shared_up,     // [R, J]
    uint3 threadgroup_position_in_grid [[threadgroup_position_in_grid]],
    uint3 threadgroups_per_grid [[threadgroups_per_grid]],
    uint thread_index_in_threadgroup [[thread_index_in_threadgroup]],
    uint thread_index_in_simdgroup [[thread_index_in_simdgroup]],
    uint simdgroup_index_in_threadgroup [[simdgroup_index_in_threadgroup]]) {
  P_SHARED float red[SW8 > 1 ? SW8 * WN8 * (32 / LK8) * TN8 * R : 1];
  const uint matrices = 2u, share = uint(PICKS), each = uint(WN * (32 / LK) * TN), each8 = uint(WN8 * (32 / LK8) * TN8);
  const uint tiles = (uint(N) + each - 1u) / each, tiles8 = (uint(J) + each8 - 1u) / each8;
  const uint own = uint(PICKS) * matrices * tiles;
  uint at = threadgroup_position_in_grid.x, row = threadgroup_position_in_grid.y, rows = threadgroups_per_grid.y;
  // ---- the shared expert's part, by threadgroups beyond the row's own
  if (at >= own) {
    uint task = row * (threadgroups_per_grid.x - own) + at - own, tile = task % (2u * tiles8),
         turn = task / (2u * tiles8);
    if (turn * uint(R) >= rows) return;
    bool third = tile >= tiles8;
    shared_tile<K, R, LK8, SW8, WN8, TN8, PF8, DB8, W8, J % TN8 != 0>(
        third ? w3 : w1, third ? s3 : s1, x, third ? shared_up : shared_gate, red, rows, turn,
        third ? tile - tiles8 : tile, uint(J), thread_index_in_simdgroup, simdgroup_index_in_threadgroup,
        thread_index_in_threadgroup);
    return;
  }
  // ---- the routed experts' part
  uint pairs = rows * uint(PICKS), pair = row * uint(PICKS) + at / (matrices * tiles);
  uint matrix = at / tiles % matrices, tile = at % tiles;
  P_DEV bfloat16_t* y = matrix == 0u ? gate : up;
#include "experts/experts_rows.h"
}
