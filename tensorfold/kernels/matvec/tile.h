// What the kernels of matrix times few rows share: which rows a threadgroup owns, and the end of every sum. Knows no
// code.
//
// Order: a sum over K has VL running sums, VL from K alone; the end is a tree over them, neighbours first.
// Threads: lane v of LK lanes in SW SIMD groups (LK SW = VL) holds running sum v for TN neighbouring rows of w and R
// rows of x. The rows of x go in groups of R (grid y). Beyond the tiles of w stand, along grid x, as many idle
// threadgroups as the last group lacks rows: so a launch knows its rows. A group that lacks rows takes some twice, and
// writes them once.
#pragma once
#include "wide.h"

// sums of a threadgroup that SIMD groups exchange
#define P_EXCHANGE (SW > 1 ? SW * WN * (32 / LK) * TN * R : 1)
// rows of w a threadgroup owns, and threadgroups that own n rows
#define P_TILE (WN * (32 / LK) * TN)
#define P_TILES(n) ((n + P_TILE - 1) / P_TILE)

// 16 bytes at an address that W divides
template <int W>  // bytes that divide the address: 8 or 16
P_FN uint4 load16(const P_DEV uchar* p) {
  if (W == 16) return p_ldw((const P_DEV uint4*)p);
  const P_DEV uint2* q = (const P_DEV uint2*)p;
  uint2 lo = q[0], hi = q[1];
  uint4 r;
  r.x = lo.x;
  r.y = lo.y;
  r.z = hi.x;
  r.w = hi.y;
  return r;
}

// Of a group's R rows the first half are neighbours from here on, and so are the others from `second_rows` on.
template <int R>  // rows of x a threadgroup takes at once
P_FN uint first_rows(uint rows, uint group) {
  return rows >= uint(R) ? p_minu(group * uint(R), rows - uint(R)) : 0u;
}
template <int R>  // rows of x a threadgroup takes at once
P_FN uint second_rows(uint rows, uint group) {
  return rows >= uint(R) ? first_rows<R>(rows, group) + uint((R + 1) / 2) : rows - uint(R / 2);
}

// `row`: the r-th of a group's R rows of x; whether this group writes it
template <int R>  // rows of x a threadgroup takes at once
P_FN bool own_row(uint rows, uint group, uint r, P_THREAD uint& row) {
  const uint half_rows = uint((R + 1) / 2);
  uint first = first_rows<R>(rows, group);
  row = r < half_rows ? first + r : second_rows<R>(rows, group) + r - half_rows;
  return row >= group * uint(R) && (r < half_rows || row >= first + half_rows);
}

template <
    int R,       // rows of x a threadgroup takes at once
    typename Y>  // type of y: float or bfloat16_t
P_FN void write_sum(P_DEV Y* y, uint rows, uint group, uint r, uint n, uint count, ulong stride, float sum) {
  uint row;
  bool mine = own_row<R>(rows, group, r, row);
  if (mine && n < count) p_store(y + ulong(row) * stride + n, sum);
}

// The tree over the lanes of acc[i R + r], sum of row i of w and r of x; red then holds, for each of SW parts of the
// sums, that of the threadgroup's row n and r at [n R + r].
template <
    int R,   // rows of x a threadgroup takes at once
    int LK,  // lanes that share a row's running sums
    int SW,  // SIMD groups that share them: LK SW running sums
    int WN,  // SIMD groups side by side on other rows of w
    int TN>  // neighbouring rows of w a lane sums
P_FN void share_sums(P_THREAD float* acc, P_TG float* red, uint lane, uint simd) {
  const uint LN = 32u / uint(LK), Q = uint(TN * R);
  uint kl = lane % uint(LK), nl = lane / uint(LK), part = simd % uint(SW), wn = simd / uint(SW), base = 0u;
  bool own = true;
  P_TREE(acc, TN * R, LK, 1, kl, base, own)
  if (own) {
    #pragma unroll
    for (int i = 0; i < p_left(TN * R, LK); i++) red[((part * uint(WN) + wn) * LN + nl) * Q + base + uint(i)] = acc[i];
  }
}
// the end of the tree: the parts of sum u, `apart` from each other
template <int SW>  // SIMD groups that share them: LK SW running sums
P_FN float parts_sum(const P_TG float* red, uint apart, uint u) {
  float a[SW];
  #pragma unroll
  for (int k = 0; k < SW; k++) a[k] = red[uint(k) * apart + u];
  #pragma unroll
  for (int d = 1; d < SW; d = d * 2) {
    #pragma unroll
    for (int k = 0; k < SW; k += 2 * d) a[k] = p_add(a[k], a[k + d]);
  }
  return a[0];
}

// The tree over v of acc[i R + r] and its result; `tile` is the threadgroup's first of `count` rows of w.
template <
    int R,       // rows of x a threadgroup takes at once
    int LK,      // lanes that share a row's running sums
    int SW,      // SIMD groups that share them: LK SW running sums
    int WN,      // SIMD groups side by side on other rows of w
    int TN,      // neighbouring rows of w a lane sums
    typename Y>  // type of y: float or bfloat16_t
P_FN void write_sums(P_THREAD float* acc, P_TG float* red, P_DEV Y* y, uint rows, uint group, uint tile, uint count,
                     ulong stride, uint lane, uint simd, uint index) {
  const uint LN = 32u / uint(LK), Q = uint(TN * R);
  if (SW > 1) {
    share_sums<R, LK, SW, WN, TN>(acc, red, lane, simd);
    P_BARRIER();
    for (uint u = index; u < uint(WN) * LN * Q; u += uint(32 * SW * WN)) {
      uint n = tile + u / uint(R);
      write_sum<R>(y, rows, group, u % uint(R), n, count, stride, parts_sum<SW>(red, uint(WN) * LN * Q, u));
    }
  } else {
    uint kl = lane % uint(LK), base = 0u;
    bool own = true;
    P_TREE(acc, TN * R, LK, 1, kl, base, own)
    if (own) {
      #pragma unroll
      for (int i = 0; i < p_left(TN * R, LK); i++) {
        uint e = base + uint(i), n = tile + (simd * LN + lane / uint(LK)) * uint(TN) + e / uint(R);
        write_sum<R>(y, rows, group, e % uint(R), n, count, stride, acc[i]);
      }
    }
  }
}
