// y = w x for e4m3 weights in 32x32 blocks; with G > 1 groups, rows g N / G .. of w see part g of x (wo_a).
// Orders and what the threads do: fp8.h and tile.h. Grid (tiles of w and idle threadgroups, groups of R rows of x).
#include "fp8.h"

template <typename X, typename Y, int G, int N, int K, int R, int LK, int SW, int WN, int TN, int PF, int DB, int W>
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
  uint tile = threadgroup_position_in_grid.x, part = tile / each;
  if (part >= uint(G)) return;
  uint rows = threadgroups_per_grid.y * uint(R) - (threadgroups_per_grid.x - uint(G) * each);
  uint group = threadgroup_position_in_grid.y, lane = thread_index_in_simdgroup, simd = simdgroup_index_in_threadgroup;
  uint start = (tile - part * each) * uint(P_TILE), v = simd % uint(SW) * uint(LK) + lane % uint(LK);
  uint row = start + (simd / uint(SW) * (32u / uint(LK)) + lane / uint(LK)) * uint(TN);
  float acc[TN * R];
  fp8_sums<K, G * K, R, LK * SW, TN, PF, DB, W, (N / G) % TN != 0>(
      w + ulong(part * count) * uint(K), s + (part * count >> 5) * uint(K / 32), x + part * uint(K), rows, group, row, count, v, acc);
  write_sums<R, LK, SW, WN, TN>(acc, red, y + part * count, rows, group, start, count, ulong(N), lane, simd, thread_index_in_threadgroup);
}
