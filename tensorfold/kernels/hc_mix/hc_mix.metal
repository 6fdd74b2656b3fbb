// From a row's partial products to the weights of its four streams: pre, post and the doubly normalised comb.
//
// Order: the C chunks are added in ascending order from zero, each sum flushed. r = 1 / sqrt(squares / K + norm_eps).
// v[m] = (product[m] * r) * scale + base[m]. pre = sigmoid(v[0..3]) + hc_eps, post = 2 sigmoid(v[4..7]).
// comb = v[8..23] as rows of four: softmax of each row, plus hc_eps; then columns and rows in turn divided by their
// sum plus hc_eps, ITERATIONS times columns, one time less rows. A sum of four is (a + b) + (c + d) along its axis.
// One SIMD group owns one row: lane m adds product m, later lane 4 i + j holds comb[i, j]; grid (32, R).
#include "maths.h"

// over the four lanes that differ in the bits a and b
P_FN float sum4(float v, ushort a, ushort b) {
  v = p_add(v, simd_shuffle_xor(v, a));
  return p_add(v, simd_shuffle_xor(v, b));
}

template <int C, int K, int ITERATIONS>
[[kernel]] void hc_mix(
    const device float* part,         // [R, C, 25]: 24 products, the square
    const device float* base,         // [24]
    const constant float* scale,      // [3]
    const constant float* norm_eps,   // [1]
    const constant float* hc_eps,     // [1]
    device float* pre,                // [R, 4]
    device float* post,               // [R, 4]
    device float* comb,               // [R, 4, 4]
    uint3 thread_position_in_grid [[thread_position_in_grid]],
    uint thread_index_in_simdgroup [[thread_index_in_simdgroup]]) {
  uint lane = thread_index_in_simdgroup, row = thread_position_in_grid.y;
  float total = 0.0f;
  if (lane < 25u) {
    ulong at = ulong(row) * uint(C * 25) + lane;
    for (uint c = 0u; c < uint(C); c++) total = p_flush(p_add(total, p_load(part[at + c * 25u])));
  }
  float squares = simd_shuffle(total, ushort(24));
  float r = p_div(1.0f, p_sqrt(p_add(p_div(squares, float(K)), norm_eps[0])));
  float v = 0.0f, e = hc_eps[0];
  if (lane < 24u) v = p_add(p_mulz(p_mulz(total, r), scale[lane < 4u ? 0 : lane < 8u ? 1 : 2]), base[lane]);
  float gate = p_sigmoid(v);
  if (lane < 4u) p_store(pre + row * 4u + lane, p_add(gate, e));
  else if (lane < 8u) p_store(post + row * 4u + lane - 4u, p_mul(2.0f, gate));
  float c = simd_shuffle(v, ushort((lane + 8u) & 31u));
  float top = p_max(c, simd_shuffle_xor(c, ushort(1)));
  top = p_max(top, simd_shuffle_xor(top, ushort(2)));
  c = p_exp(p_sub(c, top));
  c = p_add(p_div(c, sum4(c, ushort(1), ushort(2))), e);
  c = p_div(c, p_add(sum4(c, ushort(4), ushort(8)), e));
  for (int i = 1; i < ITERATIONS; i++) {
    c = p_div(c, p_add(sum4(c, ushort(1), ushort(2)), e));
    c = p_div(c, p_add(sum4(c, ushort(4), ushort(8)), e));
  }
  if (lane < 16u) p_store(comb + row * 16u + lane, c);
}
