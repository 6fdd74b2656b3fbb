// The running sums of e4m3 weights in 32x32 blocks with UE8M0 scales. Knows neither outputs nor how many matrices there
// are.
//
// x is float planes [rows, 4, K / 16, 4], element 16 c + 4 j + e of a row at [j, c, e], or bfloat16 rows [rows, K]:
// exact values, scale included.
// Order: a chunk is 16 neighbours of K, half a block; p = its products by fma, ascending, the first a product;
// a_v = fma(p, block's scale, a_v) from zero over chunks v, v + VL, ...
// Exact on every device where no product, sum or scale other than zero is below 2^-126 and no p above 2^127.
#pragma once
#include "codes.h"
#include "tile.h"

// where lane v's first chunk of a row of x begins
template <int K>  // columns of w: elements of a row of x
P_FN const P_DEV float* x_start(const P_DEV float* x, ulong element, uint v) {
  return x + element + v * 4u;
}
template <int K>  // columns of w: elements of a row of x
P_FN const P_DEV bfloat16_t* x_start(const P_DEV bfloat16_t* x, ulong element, uint v) {
  return x + element + v * 16u;
}
// neighbours 4 j .. 4 j + 3 of chunk c after the start
template <int K>  // columns of w: elements of a row of x
P_FN float4 x_four(const P_DEV float* x, uint element, uint c, uint j) {
  return ((const P_DEV float4*)x + c)[element / 4u + j * uint(K / 16)];
}
template <int K>  // columns of w: elements of a row of x
P_FN float4 x_four(const P_DEV bfloat16_t* x, uint element, uint c, uint j) {
  uint2 q = ((const P_DEV uint2*)x + c * 4u)[element / 4u + j];
  float4 r;
  r.x = p_float(q.x << 16);
  r.y = p_float(q.x & 0xffff0000u);
  r.z = p_float(q.y << 16);
  r.w = p_float(q.y & 0xffff0000u);
  return r;
}

// acc[i R + r] of lane v's rows `row` .. `row` + TN - 1 of w, of `count`; XS is the distance of two rows of x.
template <
    int K,        // columns of w: elements of a row of x
    int XS,       // elements from one row of x to the next
    int R,        // rows of x a threadgroup takes at once
    int VL,       // running sums of a row
    int TN,       // neighbouring rows of w a lane sums
    int PF,       // chunks of each loaded at a time
    int DB,       // 1: the next ones are loaded before these are summed
    int W,        // bytes a load of w may take: 8 or 16
    bool RAGGED,  // whether the last TN rows of w may be fewer
    typename X>   // type of x: float planes or bfloat16 rows
P_FN void fp8_sums(const P_DEV uchar* w, const P_DEV uchar* s, const P_DEV X* x, uint rows, uint group, uint row,
                   uint count, uint v, P_THREAD float* acc) {
  const uint T = uint(K / 16 / VL), HALF = uint((R + 1) / 2);
  // lanes beyond the end repeat its last rows: their sums are not written
  uint last = count - 1u, n = p_minu(row, last / uint(TN) * uint(TN));
  const P_DEV uchar* wp = w + ulong(n) * uint(K) + v * 16u;
  const P_DEV uchar* sp = s + (n >> 5) * uint(K / 32);
  const P_DEV X* x0 = x_start<K>(x, ulong(first_rows<R>(rows, group)) * uint(XS), v);
  const P_DEV X* x1 = x_start<K>(x, ulong(second_rows<R>(rows, group)) * uint(XS), v);
  // ---- the first chunks of w and their scales on their way
  uint at[TN];
  #pragma unroll
  for (int i = 0; i < TN; i++) at[i] = (RAGGED ? p_minu(uint(i), last - n) : uint(i)) * uint(K);
  float p[TN * R];
  uint4 q[PF * TN], next[PF * TN];
  uint sb[PF], sn[PF];
  #pragma unroll
  for (int i = 0; i < TN * R; i++) acc[i] = 0.0f;
  #pragma unroll
  for (int f = 0; f < PF; f++) {
    sb[f] = uint(sp[(uint(f * VL) + v) >> 1]);
    #pragma unroll
    for (int i = 0; i < TN; i++) q[f * TN + i] = load16<W>(wp + f * VL * 16 + at[i]);
  }
  // ---- PF chunks at a time: the next ones asked for, these multiplied, scaled and added
  #pragma unroll 1
  for (uint t = 0u; t < T; t += uint(PF)) {
    if (DB != 0 && t + uint(PF) < T) {
      #pragma unroll
      for (int f = 0; f < PF; f++) {
        uint c = (t + uint(PF + f)) * uint(VL);
        sn[f] = uint(sp[(c + v) >> 1]);
        #pragma unroll
        for (int i = 0; i < TN; i++) next[f * TN + i] = load16<W>(wp + c * 16u + at[i]);
      }
    }
    #pragma unroll
    for (int f = 0; f < PF; f++) {
      #pragma unroll
      for (int j = 0; j < 4; j++) {
        float4 wv[TN];
        #pragma unroll
        for (int i = 0; i < TN; i++) wv[i] = p_e4m3x4(p_word(q[f * TN + i], uint(j)));
        #pragma unroll
        for (int r = 0; r < R; r++) {
          uint c = (t + uint(f)) * uint(VL);
          uint step = (uint(r) < HALF ? uint(r) : uint(r) - HALF) * uint(XS);
          float4 xv = x_four<K>(uint(r) < HALF ? x0 : x1, step, c, uint(j));
          #pragma unroll
          for (int i = 0; i < TN; i++) {
            float a = j == 0 ? p_mul(wv[i].x, xv.x) : p_fma(wv[i].x, xv.x, p[i * R + r]);
            a = p_fma(wv[i].y, xv.y, a);
            a = p_fma(wv[i].z, xv.z, a);
            p[i * R + r] = p_fma(wv[i].w, xv.w, a);
          }
        }
      }
      float scale = p_ue8m0(sb[f]);
      #pragma unroll
      for (int i = 0; i < TN * R; i++) {
        acc[i] = p_fma(P_E4M3_UNIT == 1.0f ? p[i] : p_mul(p[i], P_E4M3_UNIT), scale, acc[i]);
      }
    }
    if (t + uint(PF) < T) {
      #pragma unroll
      for (int f = 0; f < PF; f++) {
        uint c = (t + uint(PF + f)) * uint(VL);
        sb[f] = DB != 0 ? sn[f] : uint(sp[(c + v) >> 1]);
        #pragma unroll
        for (int i = 0; i < TN; i++) q[f * TN + i] = DB != 0 ? next[f * TN + i] : load16<W>(wp + c * 16u + at[i]);
      }
    }
  }
}
