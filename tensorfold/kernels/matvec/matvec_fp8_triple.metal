// y0, y1, y2 = w0 x, w1 x, w2 x for three e4m3 matrices in 32x32 blocks that share x.
// Orders and what the threads do: fp8.h and tile.h. Grid (tiles of one matrix after another and idle threadgroups, groups
// of R rows of x).
#include "fp8.h"

template <typename X, typename Y, int N0, int N1, int N2, int K, int R, int LK, int SW, int WN, int TN, int PF, int DB, int W>
[[kernel]] void matvec_fp8_triple(
    const device uchar* w0,           // [N0, K]
    const device uchar* s0,           // [ceil(N0 / 32), K / 32]
    const device uchar* w1,           // [N1, K]
    const device uchar* s1,           // [ceil(N1 / 32), K / 32]
    const device uchar* w2,           // [N2, K]
    const device uchar* s2,           // [ceil(N2 / 32), K / 32]
    const device X* x,                // bfloat16 [rows, K] or float [rows, 4, K / 16, 4]
    device Y* y0,                     // [rows, N0]
    device Y* y1,                     // [rows, N1]
    device Y* y2,                     // [rows, N2]
    uint3 threadgroup_position_in_grid [[threadgroup_position_in_grid]],
    uint3 threadgroups_per_grid [[threadgroups_per_grid]],
    uint thread_index_in_threadgroup [[thread_index_in_threadgroup]],
    uint thread_index_in_simdgroup [[thread_index_in_simdgroup]],
    uint simdgroup_index_in_threadgroup [[simdgroup_index_in_threadgroup]]) {
  P_SHARED float red[P_EXCHANGE];
  const uint end0 = P_TILES(uint(N0)), end1 = end0 + P_TILES(uint(N1)), end2 = end1 + P_TILES(uint(N2));
  uint tile = threadgroup_position_in_grid.x;
  if (tile >= end2) return;
  uint rows = threadgroups_per_grid.y * uint(R) - (threadgroups_per_grid.x - end2);
  uint group = threadgroup_position_in_grid.y, lane = thread_index_in_simdgroup, simd = simdgroup_index_in_threadgroup;
  uint count = tile < end0 ? uint(N0) : tile < end1 ? uint(N1) : uint(N2);
  uint start = (tile < end0 ? tile : tile < end1 ? tile - end0 : tile - end1) * uint(P_TILE);
  const P_DEV uchar* w = tile < end0 ? w0 : tile < end1 ? w1 : w2;
  const P_DEV uchar* s = tile < end0 ? s0 : tile < end1 ? s1 : s2;
  P_DEV Y* y = tile < end0 ? y0 : tile < end1 ? y1 : y2;
  uint v = simd % uint(SW) * uint(LK) + lane % uint(LK);
  uint row = start + (simd / uint(SW) * (32u / uint(LK)) + lane / uint(LK)) * uint(TN);
  float acc[TN * R];
  fp8_sums<K, K, R, LK * SW, TN, PF, DB, W, (N0 % TN != 0 || N1 % TN != 0 || N2 % TN != 0)>(w, s, x, rows, group, row, count, v, acc);
  write_sums<R, LK, SW, WN, TN>(acc, red, y, rows, group, start, count, ulong(count), lane, simd, thread_index_in_threadgroup);
}
