// Scores of attention over packed rows by place. Columns: W window places, then K places of compressed rows, then empty ones up
// to C. An empty place is -1, its score -infinity.
// Order, of each row and head: q turned by its row's angles (last RD elements of a head) and rounded to bfloat16, the bits of
// `rope`. A score is four running sums of fma (sum i takes the groups of 16 elements i, i + 4, ...), (0 + 1) + (2 + 3), times `scale`;
// below 2^-64 it is 0, which changes no P.
// A threadgroup of 32 G threads owns HG heads of one row, which share a decoded column. A SIMD group scores 8 window columns, or
// 8 NC others; no threadgroup holds both kinds.
// WIDE: rows begin at multiples of 16 bytes.
#include "dots.h"
#include "maths.h"
#include "rope/turn.h"

template <int H, int D, int RD, int HG, int G, int NC, bool WIDE>
[[kernel]] void attend_scores(
    const device bfloat16_t* q,       // [R, H, D], not turned
    const device float* table,        // [R, RD / 2, 2]: cos, sin
    const device uchar* window,       // [N, D + D / 32]
    const device uchar* window_new,   // [M, D + D / 32]
    const device int* window_places,  // [R, W]
    const device uchar* packed,       // [L, D / 2 + D / 16]
    const device uchar* packed_new,   // [P, D / 2 + D / 16]
    const device int* packed_places,  // [R, K]
    const constant float* scale,      // [1]
    const constant int* sizes,        // [5]: N, W, L, K, C
    device float* scores,             // [R, H, C]
    uint3 threadgroup_position_in_grid [[threadgroup_position_in_grid]],
    uint thread_index_in_simdgroup [[thread_index_in_simdgroup]],
    uint simdgroup_index_in_threadgroup [[simdgroup_index_in_threadgroup]],
    uint thread_index_in_threadgroup [[thread_index_in_threadgroup]]) {
  constexpr uint STILL = uint(D - RD) / 2u;  // pairs of a head that are not turned
  constexpr int QUERY = 4 * P_QUERY_SUM(D);
  P_SHARED AttendQuad turned[HG * QUERY / 4];
  P_TG float* query = (P_TG float*)turned;
  uint lane = thread_index_in_simdgroup, group = simdgroup_index_in_threadgroup;
  uint head = threadgroup_position_in_grid.x % uint(H / HG) * uint(HG), tile = threadgroup_position_in_grid.x / uint(H / HG);
  ulong row = threadgroup_position_in_grid.y;
  uint w = uint(sizes[1]), k = uint(sizes[3]), all = uint(sizes[4]);
  uint near_tiles = (w + uint(8 * G - 1)) / uint(8 * G);
  bool near = tile < near_tiles;
  uint end = near ? w : all, first = near ? (tile * uint(G) + group) * 8u : w + ((tile - near_tiles) * uint(G) + group) * uint(8 * NC);
  int places[NC];
  #pragma unroll
  for (int c = 0; c < NC; c++) {
    uint column = first + uint(8 * c) + (lane & 7u);
    places[c] = -1;
    if (near && column < w) places[c] = window_places[row * w + column];
    if (!near && column < w + k) places[c] = packed_places[row * k + (column - w)];
  }
  ulong start = (row * uint(H) + head) * uint(D), angles = row * uint(RD), to = (row * uint(H) + head) * all + first;
  #pragma unroll 1
  for (uint i = thread_index_in_threadgroup; i < uint(HG * D / 2); i += uint(32 * G)) {
    uint pair = i % uint(D / 2), d = 2u * pair;
    float v[2];
    v[0] = p_load(q[start + 2u * i]);
    v[1] = p_load(q[start + 2u * i + 1u]);
    if (pair >= STILL) {
      ulong at = angles + 2u * (pair - STILL);
      rope_turn<false>(v, table[at], table[at + 1u]);
    }
    uint at = i / uint(D / 2) * uint(QUERY) + d / 16u % 4u * uint(P_QUERY_SUM(D)) + d / 64u * 16u + d % 16u;
    query[at] = p_round_bf(v[0]);
    query[at + 1u] = p_round_bf(v[1]);
  }
  P_BARRIER();
  if (first >= end) return;
  if (near) {
    attend_task<HG, D, 1, true, WIDE>(query, window, window_new, sizes[0], places, lane, scale[0], scores + to, all, end - first);
  } else {
    attend_task<HG, D, NC, false, WIDE>(query, packed, packed_new, sizes[2], places, lane, scale[0], scores + to, all, end - first);
  }
}
