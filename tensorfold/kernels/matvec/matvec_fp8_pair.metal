// y0, y1 = w0 x, w1 x for two e4m3 matrices in 32x32 blocks that share x.
//
// Order: fp8.h, then the tree of tile.h.
// Threads: tile.h. Grid (tiles of one matrix after another and idle threadgroups, groups of R rows of x).
#include "fp8.h"

template <
    typename X,  // type of x: float planes or bfloat16 rows
    typename Y,  // type of y: float or bfloat16_t
    int N0,      // rows of w0
    int N1,      // rows of w1
    int K,       // columns of w0 and w1: elements of a row of x
    int R,       // rows of x a threadgroup takes at once
    int LK,      // lanes that share a row's running sums
    int SW,      // SIMD groups that share them: LK SW running sums
    int WN,      // SIMD groups side by side on other rows of w
    int TN,      // neighbouring rows of w a lane sums
    int PF,      // chunks of each loaded at a time
    int DB,      // 1: the next ones are loaded before these are summed
    int W>       // bytes a load of w may take: 8 or 16
[[kernel]] void matvec_fp8_pair(
    const device uchar* w0,           // [N0, K]
    const device uchar* s0,           // [ceil(N0 / 32), K / 32]
    const device uchar* w1,           // [N1, K]
    const device uchar* s1,           // [ceil(N1 / 32), K / 32]
    const device X* x,                // bfloat16 [rows, K] or float [rows, 4, K / 16, 4]
    device Y* y0,                     // [rows, N0]
    device Y* y1,                     // [rows, N1]
    uint3 threadgroup_position_in_grid [[threadgroup_position_in_grid]],
    uint3 threadgroups_per_grid [[threadgroups_per_grid]],
    uint thread_index_in_threadgroup [[thread_index_in_threadgroup]],
    uint thread_index_in_simdgroup [[thread_index_in_simdgroup]],
    uint simdgroup_index_in_threadgroup [[simdgroup_index_in_threadgroup]]) {
  P_SHARED float red[P_EXCHANGE];
  const uint end0 = P_TILES(uint(N0)), end1 = end0 + P_TILES(uint(N1));
  // ---- which matrix, which of its rows and of x are this threadgroup's, and which of them this lane's
  uint tile = threadgroup_position_in_grid.x;
  if (tile >= end1) return;
  uint rows = threadgroups_per_grid.y * uint(R) - (threadgroups_per_grid.x - end1);
  uint group = threadgroup_position_in_grid.y, lane = thread_index_in_simdgroup, simd = simdgroup_index_in_threadgroup;
  uint count = tile < end0 ? uint(N0) : uint(N1);
  uint start = (tile < end0 ? tile : tile - end0) * uint(P_TILE);
  const P_DEV uchar* w = tile < end0 ? w0 : w1;
  const P_DEV uchar* s = tile < end0 ? s0 : s1;
  P_DEV Y* y = tile < end0 ? y0 : y1;
  uint v = simd % uint(SW) * uint(LK) + lane % uint(LK);
  uint row = start + (simd / uint(SW) * (32u / uint(LK)) + lane / uint(LK)) * uint(TN);
  // ---- the sums: fp8.h, then tile.h
  float acc[TN * R];
  fp8_sums<K, K, R, LK * SW, TN, PF, DB, W, (N0 % TN != 0 || N1 % TN != 0)>(w, s, x, rows, group, row, count, v, acc);
  write_sums<R, LK, SW, WN, TN>(
      acc, red, y, rows, group, start, count, ulong(count), lane, simd, thread_index_in_threadgroup);
}
