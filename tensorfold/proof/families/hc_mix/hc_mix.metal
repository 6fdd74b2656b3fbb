// From a row's partial products to the weights of its four streams: pre, post and the doubly normalised comb.
// With r = 1 / sqrt(squares / K + norm_eps) and v[m] = (product[m] * r) * scale + base[m]:
//   pre = sigmoid(v[0..3]) + hc_eps
//   post = 2 sigmoid(v[4..7])
//   comb = v[8..23] as rows of four: softmax of each row, plus hc_eps; then columns and rows in turn divided by their
//          sum plus hc_eps, ITERATIONS times columns, one time less rows.
// Launched by no model, but judged by itself: alone.py says why.
//
// Order: the C chunks are added in ascending order from zero, each sum flushed. A sum of four is (a + b) + (c + d)
// along its axis.
// Threads: one SIMD group owns one row: lane m adds product m, later lane 4 i + j holds comb[i, j]; grid (32, R).
#include "hc_mix/hc_mix.h"

template <
    int C,           // chunks of 512 elements of a row
    int K,           // elements of a row's streams together
    int ITERATIONS>  // turns of the double normalisation
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
  uint lane = thread_index_in_simdgroup;
  ulong row = thread_position_in_grid.y;
  mix_row<C, K, ITERATIONS>(part + row * uint(C * 25), base, scale[mix_scale(lane)], norm_eps[0], hc_eps[0],
                            pre + row * 4u, post + row * 4u, comb + row * 16u, lane);
}
