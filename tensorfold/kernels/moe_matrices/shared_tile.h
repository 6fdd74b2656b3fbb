// One threadgroup's rows of an e4m3 matrix: the sums of fp8.h and their end of tile.h. Knows no expert.
#pragma once
#include "matvec/fp8.h"

template <
    int K,        // columns of w: elements of a row of x (of its part)
    int R,        // rows of x a threadgroup takes at once
    int LK,       // lanes that share a row's running sums
    int SW,       // SIMD groups that share them: LK SW running sums
    int WN,       // SIMD groups side by side on other rows of w
    int TN,       // neighbouring rows of w a lane sums
    int PF,       // chunks of each loaded at a time
    int DB,       // 1: the next ones are loaded before these are summed
    int W,        // bytes a load of w may take: 8 or 16
    bool RAGGED,  // whether the last TN rows of w may be fewer
    typename X,   // type of x: float planes or bfloat16 rows
    typename Y>   // type of y: float or bfloat16_t
P_FN void shared_tile(
    const P_DEV uchar* w, const P_DEV uchar* s, const P_DEV X* x, P_DEV Y* y, P_TG float* red, uint rows, uint group,
    uint tile, uint count, uint lane, uint simd, uint index) {
  uint start = tile * uint(P_TILE), v = simd % uint(SW) * uint(LK) + lane % uint(LK);
  uint row = start + (simd / uint(SW) * (32u / uint(LK)) + lane / uint(LK)) * uint(TN);
  float acc[TN * R];
  fp8_sums<K, K, R, LK * SW, TN, PF, DB, W, RAGGED>(w, s, x, rows, group, row, count, v, acc);
  write_sums<R, LK, SW, WN, TN>(acc, red, y, rows, group, start, count, ulong(count), lane, simd, index);
}
