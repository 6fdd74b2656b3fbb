// w1 x and w3 x of the experts each row goes to and of the shared expert, one launch: the bits of experts_up and of
// matvec_fp8_pair, whose orders (experts_rows.h; fp8.h and tile.h) these are. Names that end in 8 belong to the FP8 part.
// Grid (threadgroups of a row, rows). Of a row's threadgroups the first take the tiles of its picks' matrices, pick by pick;
// the others of all rows, numbered through, take the shared matrices' tiles by groups of R rows; the last few may be idle.
#include "experts/experts.h"
#include "shared_tile.h"

template <int K, int N, int PICKS, int LK, int W, int WN, int TN, int PF, int RG, int J, int R, int LK8, int SW8, int WN8, int TN8, int PF8, int DB8, int W8>
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
  if (at >= own) {
    uint task = row * (threadgroups_per_grid.x - own) + at - own, tile = task % (2u * tiles8), turn = task / (2u * tiles8);
    if (turn * uint(R) >= rows) return;
    bool third = tile >= tiles8;
    shared_tile<K, R, LK8, SW8, WN8, TN8, PF8, DB8, W8, J % TN8 != 0>(
        third ? w3 : w1, third ? s3 : s1, x, third ? shared_up : shared_gate, red, rows, turn, third ? tile - tiles8 : tile,
        uint(J), thread_index_in_simdgroup, simdgroup_index_in_threadgroup, thread_index_in_threadgroup);
    return;
  }
  uint pairs = rows * uint(PICKS), pair = row * uint(PICKS) + at / (matrices * tiles);
  uint matrix = at / tiles % matrices, tile = at % tiles;
  P_DEV bfloat16_t* y = matrix == 0u ? gate : up;
#include "experts/experts_rows.h"
}
