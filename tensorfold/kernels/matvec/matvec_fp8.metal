// y = w x for e4m3 weights in 32x32 blocks; with G > 1 groups, rows g N / G .. of w see part g of x (wo_a).
//
// Order: fp8.h, then the tree of tile.h.
// Threads: tile.h. Grid (tiles of w and idle threadgroups, groups of R rows of x).
#include "fp8.h"

template <
    typename X,  // type of x: float planes or bfloat16 rows
    typename Y,  // type of y: float or bfloat16_t
    int G,       // groups of rows of w, which see a part of x each
    int N,       // rows of w
    int K,       // columns of w: elements of a row of x (of its part)
    int R,       // rows of x a threadgroup takes at once
    int LK,      // lanes that share a row's running sums
    int SW,      // SIMD groups that share them: LK SW running sums
    int WN,      // SIMD groups side by side on other rows of w
    int TN,      // neighbouring rows of w a lane sums
    int PF,      // chunks of each loaded at a time
    int DB,      // 1: the next ones are loaded before these are summed
    int W>       // bytes a load of w may take: 8 or 16
[[kernel]] void matvec_fp8(
    const device uchar* w,            // [N, K]
    const device uchar* s,            // [ceil(N / 32), K / 32]
    const device X* x,                // bfloat16 [rows, G K] or float [rows, G, 4, K / 16, 4]
    device Y* y,                      // [rows, N]
    uint3 threadgroup_position_in_grid [[threadgroup_position_in_grid]],
    uint3 threadgroups_per_grid [[threadgroups_per_grid]],
    uint thread_index_in_threadgroup [[thread_index_in_threadgroup]],
    uint thread_index_in_simdgroup [[thread_index_in_simdgroup]],
    uint simdgroup_index_in_threadgroup [[simdgroup_index_in_threadgroup]]) {
  P_SHARED float red[P_EXCHANGE];
  const uint count = uint(N / G), each = P_TILES(count);
  // ---- which rows of w and of x are this threadgroup's, and which of them this lane's
  uint tile = threadgroup_position_in_grid.x, part = tile / each;
  if (part >= uint(G)) return;
  uint rows = threadgroups_per_grid.y * uint(R) - (threadgroups_per_grid.x - uint(G) * each);
  uint group = threadgroup_position_in_grid.y, lane = thread_index_in_simdgroup, simd = simdgroup_index_in_threadgroup;
  uint start = (tile - part * each) * uint(P_TILE), v = simd % uint(SW) * uint(LK) + lane % uint(LK);
  uint row = start + (simd / uint(SW) * (32u / uint(LK)) + lane / uint(LK)) * uint(TN);
  // ---- the sums: fp8.h, then tile.h
  float acc[TN * R];
  fp8_sums<K, G * K, R, LK * SW, TN, PF, DB, W, (N / G) % TN != 0>(
      w + ulong(part * count) * uint(K), s + (part * count >> 5) * uint(K / 32), x + part * uint(K), rows, group, row,
      count, v, acc);
  write_sums<R, LK, SW, WN, TN>(
      acc, red, y + part * count, rows, group, start, count, ulong(N), lane, simd, thread_index_in_threadgroup);
}
