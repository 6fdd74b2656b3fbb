// One SIMD group turns a row's partial products into pre, post and comb, in the order hc_mix.metal states. Knows no
// launch.
#pragma once
#include "maths.h"

// over the four lanes that differ in the bits a and b
P_FN float sum4(float v, ushort a, ushort b) {
  v = p_add(v, simd_shuffle_xor(v, a));
  return p_add(v, simd_shuffle_xor(v, b));
}
// which of the three scales a lane's product takes
P_FN uint mix_scale(uint lane) { return lane < 4u ? 0u : lane < 8u ? 1u : 2u; }
// part [C, 25], pre [4], post [4] and comb [4, 4] of this row; `scale` is this lane's
template <
    int C,           // chunks of 512 elements of a row
    int K,           // elements of a row's streams together
    int ITERATIONS>  // turns of the double normalisation
P_FN void mix_row(const P_DEV float* part, const P_DEV float* base, float scale, float norm_eps, float e,
                  P_DEV float* pre, P_DEV float* post, P_DEV float* comb, uint lane) {
  // ---- lane m: product m of all chunks; lane 24: the square
  float total = 0.0f;
  if (lane < 25u) {
    #pragma unroll
    for (uint c = 0u; c < uint(C); c++) total = p_flush(p_add(total, p_load(part[c * 25u + lane])));
  }
  float squares = simd_shuffle(total, ushort(24));
  float r = p_div(1.0f, p_sqrt(p_add(p_div(squares, float(K)), norm_eps)));
  // ---- pre and post
  float v = 0.0f;
  if (lane < 24u) v = p_add(p_mulz(p_mulz(total, r), scale), base[lane]);
  float gate = p_sigmoid(v);
  if (lane < 4u) p_store(pre + lane, p_add(gate, e));
  else if (lane < 8u) p_store(post + lane - 4u, p_mul(2.0f, gate));
  // ---- lane 4 i + j: comb[i, j], a softmax of each row, then columns and rows in turn
  float c = simd_shuffle(v, ushort((lane + 8u) & 31u));
  float top = p_max(c, simd_shuffle_xor(c, ushort(1)));
  top = p_max(top, simd_shuffle_xor(top, ushort(2)));
  c = p_exp(p_sub(c, top));
  c = p_add(p_div(c, sum4(c, ushort(1), ushort(2))), e);
  c = p_div(c, p_add(sum4(c, ushort(4), ushort(8)), e));
  // a loop of twenty copies takes longer to fetch than to run
  #pragma unroll 1
  for (int i = 1; i < ITERATIONS; i++) {
    c = p_div(c, p_add(sum4(c, ushort(1), ushort(2)), e));
    c = p_div(c, p_add(sum4(c, ushort(4), ushort(8)), e));
  }
  if (lane < 16u) p_store(comb + lane, c);
}
