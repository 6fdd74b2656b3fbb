// One threadgroup's rows of an e4m3 matrix: the sums of fp8.h and their end of tile.h. Knows no expert.
#pragma once
#include "matvec/fp8.h"

template <int K, int R, int LK, int SW, int WN, int TN, int PF, int DB, int W, bool RAGGED, typename X, typename Y>
P_FN void shared_tile(const P_DEV uchar* w, const P_DEV uchar* s, const P_DEV X* x, P_DEV Y* y, P_TG float* red, uint rows,
                      uint group, uint tile, uint count, uint lane, uint simd, uint index) {
  uint start = tile * uint(P_TILE), v = simd % uint(SW) * uint(LK) + lane % uint(LK);
  uint row = start + (simd / uint(SW) * (32u / uint(LK)) + lane / uint(LK)) * uint(TN);
  float acc[TN * R];
  fp8_sums<K, K, R, LK * SW, TN, PF, DB, W, RAGGED>(w, s, x, rows, group, row, count, v, acc);
  write_sums<R, LK, SW, WN, TN>(acc, red, y, rows, group, start, count, ulong(count), lane, simd, index);
}
