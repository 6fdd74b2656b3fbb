// y = w x for bfloat16 weights, in float32. Subnormal weights are not flushed: exact on every device where no weight,
// product or sum other than zero is below 2^-126.
//
// Order: a chunk is 8 neighbours of K; a_v = one chain of fma from zero over chunks v, v + VL, ..., ascending inside a
// chunk; then the tree of tile.h.
// Threads: tile.h. Grid (tiles of w and idle threadgroups, groups of R rows of x).
#include "tile.h"

// eight neighbours of a row: chunk c after x
P_FN void x_eight(const P_DEV float* x, uint c, P_THREAD float4& lo, P_THREAD float4& hi) {
  const P_DEV float4* q = (const P_DEV float4*)x;
  lo = q[c * 2u];
  hi = q[c * 2u + 1u];
}
P_FN void x_eight(const P_DEV bfloat16_t* x, uint c, P_THREAD float4& lo, P_THREAD float4& hi) {
  uint4 q = ((const P_DEV uint4*)x)[c];
  lo.x = p_float(q.x << 16);
  lo.y = p_float(q.x & 0xffff0000u);
  lo.z = p_float(q.y << 16);
  lo.w = p_float(q.y & 0xffff0000u);
  hi.x = p_float(q.z << 16);
  hi.y = p_float(q.z & 0xffff0000u);
  hi.z = p_float(q.w << 16);
  hi.w = p_float(q.w & 0xffff0000u);
}
// four weights of two words times four of x, onto a
P_FN float four(uint a, uint b, float4 x, float sum) {
  sum = p_fma(p_float(a << 16), x.x, sum);
  sum = p_fma(p_float(a & 0xffff0000u), x.y, sum);
  sum = p_fma(p_float(b << 16), x.z, sum);
  return p_fma(p_float(b & 0xffff0000u), x.w, sum);
}

template <
    typename X,  // type of x: float or bfloat16_t
    typename Y,  // type of y: float or bfloat16_t
    int N,       // rows of w
    int K,       // columns of w: elements of a row of x
    int R,       // rows of x a threadgroup takes at once
    int LK,      // lanes that share a row's running sums
    int SW,      // SIMD groups that share them: LK SW running sums
    int WN,      // SIMD groups side by side on other rows of w
    int TN,      // neighbouring rows of w a lane sums
    int PF,      // chunks of each loaded at a time
    int DB,      // 1: the next ones are loaded before these are summed
    int W>       // bytes a load of w may take: 8 or 16
[[kernel]] void matvec_bf16(
    const device bfloat16_t* w,       // [N, K]
    const device X* x,                // bfloat16 or float [rows, K]
    device Y* y,                      // [rows, N]
    uint3 threadgroup_position_in_grid [[threadgroup_position_in_grid]],
    uint3 threadgroups_per_grid [[threadgroups_per_grid]],
    uint thread_index_in_threadgroup [[thread_index_in_threadgroup]],
    uint thread_index_in_simdgroup [[thread_index_in_simdgroup]],
    uint simdgroup_index_in_threadgroup [[simdgroup_index_in_threadgroup]]) {
  P_SHARED float red[P_EXCHANGE];
  const uint VL = uint(LK * SW), T = uint(K / 8) / VL, HALF = uint((R + 1) / 2), tiles = P_TILES(uint(N));
  uint tile = threadgroup_position_in_grid.x;
  if (tile >= tiles) return;
  uint rows = threadgroups_per_grid.y * uint(R) - (threadgroups_per_grid.x - tiles);
  uint group = threadgroup_position_in_grid.y, lane = thread_index_in_simdgroup, simd = simdgroup_index_in_threadgroup;
  // ---- this lane's running sum, its rows of w and its rows of x
  uint v = simd % uint(SW) * uint(LK) + lane % uint(LK);
  uint row = tile * uint(P_TILE) + (simd / uint(SW) * (32u / uint(LK)) + lane / uint(LK)) * uint(TN);
  uint last = uint(N - 1), n = p_minu(row, last / uint(TN) * uint(TN));
  const P_DEV uchar* wp = (const P_DEV uchar*)w + (ulong(n) * uint(K) + v * 8u) * 2u;
  const P_DEV X* x0 = x + ulong(first_rows<R>(rows, group)) * uint(K) + v * 8u;
  const P_DEV X* x1 = x + ulong(second_rows<R>(rows, group)) * uint(K) + v * 8u;
  uint at[TN];
  #pragma unroll
  for (int i = 0; i < TN; i++) at[i] = (N % TN != 0 ? p_minu(uint(i), last - n) : uint(i)) * uint(K * 2);
  // ---- the first chunks of w on their way
  float acc[TN * R];
  uint4 q[PF * TN], next[PF * TN];
  #pragma unroll
  for (int i = 0; i < TN * R; i++) acc[i] = 0.0f;
  #pragma unroll
  for (int f = 0; f < PF; f++) {
    #pragma unroll
    for (int i = 0; i < TN; i++) q[f * TN + i] = load16<W>(wp + uint(f) * VL * 16u + at[i]);
  }
  // ---- PF chunks at a time: the next ones asked for, these multiplied and added
  #pragma unroll 1
  for (uint t = 0u; t < T; t += uint(PF)) {
    if (DB != 0 && t + uint(PF) < T) {
      #pragma unroll
      for (int f = 0; f < PF; f++) {
        #pragma unroll
        for (int i = 0; i < TN; i++) next[f * TN + i] = load16<W>(wp + (t + uint(PF + f)) * VL * 16u + at[i]);
      }
    }
    #pragma unroll
    for (int f = 0; f < PF; f++) {
      #pragma unroll
      for (int r = 0; r < R; r++) {
        float4 lo, hi;
        x_eight(uint(r) < HALF ? x0 + uint(r * K) : x1 + (uint(r) - HALF) * uint(K), (t + uint(f)) * VL, lo, hi);
        #pragma unroll
        for (int i = 0; i < TN; i++) {
          uint4 b = q[f * TN + i];
          acc[i * R + r] = four(b.z, b.w, hi, four(b.x, b.y, lo, acc[i * R + r]));
        }
      }
    }
    if (t + uint(PF) < T) {
      #pragma unroll
      for (int f = 0; f < PF; f++) {
        #pragma unroll
        for (int i = 0; i < TN; i++)
          q[f * TN + i] = DB != 0 ? next[f * TN + i] : load16<W>(wp + (t + uint(PF + f)) * VL * 16u + at[i]);
      }
    }
  }
  // ---- the tree over the running sums, and y
  write_sums<R, LK, SW, WN, TN>(
      acc, red, y, rows, group, tile * uint(P_TILE), uint(N), ulong(N), lane, simd, thread_index_in_threadgroup);
}
