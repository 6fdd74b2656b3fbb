// What the kernels of matrix times few rows share: which rows a threadgroup owns, and the end of every sum. Knows no code.
//
// A sum over K has VL running sums, VL from K alone; lane v of LK lanes in SW SIMD groups (LK SW = VL) holds sum v for TN
// neighbouring rows of w and R rows of x. Order of the end: a tree over v, neighbours first.
// The rows of x go in groups of R (grid y). Beyond the tiles of w stand, along grid x, as many idle threadgroups as the
// last group lacks rows: so a launch knows its rows. A group that lacks rows takes some twice, and writes them once.
#pragma once
#include "wide.h"

// sums of a threadgroup that SIMD groups exchange
#define P_EXCHANGE (SW > 1 ? SW * WN * (32 / LK) * TN * R : 1)
// rows of w a threadgroup owns, and threadgroups that own n rows
#define P_TILE (WN * (32 / LK) * TN)
#define P_TILES(n) ((n + P_TILE - 1) / P_TILE)

// 16 bytes at an address that W divides
template <int W> P_FN uint4 load16(const P_DEV uchar* p) {
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
template <int R> P_FN uint first_rows(uint rows, uint group) {
  return rows >= uint(R) ? p_minu(group * uint(R), rows - uint(R)) : 0u;
}
template <int R> P_FN uint second_rows(uint rows, uint group) {
  return rows >= uint(R) ? first_rows<R>(rows, group) + uint((R + 1) / 2) : rows - uint(R / 2);
}

template <int R, typename Y>
P_FN void write_sum(P_DEV Y* y, uint rows, uint group, uint r, uint n, uint count, ulong stride, float sum) {
  const uint half_rows = uint((R + 1) / 2);
  uint first = first_rows<R>(rows, group);
  uint row = r < half_rows ? first + r : second_rows<R>(rows, group) + r - half_rows;
  bool mine = row >= group * uint(R) && (r < half_rows || row >= first + half_rows);
  if (mine && n < count) p_store(y + ulong(row) * stride + n, sum);
}

// The tree over v of acc[i R + r], sum of row i of w and r of x; `tile` is the threadgroup's first of `count` rows of w.
template <int R, int LK, int SW, int WN, int TN, typename Y>
P_FN void write_sums(P_THREAD float* acc, P_TG float* red, P_DEV Y* y, uint rows, uint group, uint tile, uint count,
                     ulong stride, uint lane, uint simd, uint index) {
  const uint LN = 32u / uint(LK), Q = uint(TN * R);
  uint kl = lane % uint(LK), nl = lane / uint(LK), part = simd % uint(SW), wn = simd / uint(SW), base = 0u;
  bool own = true;
  P_TREE(acc, TN * R, LK, 1, kl, base, own)
  const int left = p_left(TN * R, LK);
  if (SW > 1) {
    if (own) {
      #pragma unroll
      for (int i = 0; i < left; i++) red[((part * uint(WN) + wn) * LN + nl) * Q + base + uint(i)] = acc[i];
    }
    P_BARRIER();
    for (uint u = index; u < uint(WN) * LN * Q; u += uint(32 * SW * WN)) {
      float a[SW];
      #pragma unroll
      for (int k = 0; k < SW; k++) a[k] = red[uint(k * WN) * LN * Q + u];
      #pragma unroll
      for (int d = 1; d < SW; d = d * 2) {
        #pragma unroll
        for (int k = 0; k < SW; k += 2 * d) a[k] = p_add(a[k], a[k + d]);
      }
      uint e = u % Q;
      write_sum<R>(y, rows, group, e % uint(R), tile + u / Q * uint(TN) + e / uint(R), count, stride, a[0]);
    }
  } else if (own) {
    #pragma unroll
    for (int i = 0; i < left; i++) {
      uint e = base + uint(i);
      write_sum<R>(y, rows, group, e % uint(R), tile + (wn * LN + nl) * uint(TN) + e / uint(R), count, stride, acc[i]);
    }
  }
}
