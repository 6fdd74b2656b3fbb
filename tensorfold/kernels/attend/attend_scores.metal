// Scores of attention over packed rows by place: scale * (q . key), q turned by its row's angles first. Columns: W
// window places, then K places of compressed rows, then empty ones up to C. An empty place is -1, its score -infinity.
//
// Order, of each row and head: q turned (the last RD elements of a head) and rounded to bfloat16, the bits of `rope`. A
// score is four running sums of fma, sum i over the groups of 16 elements i, i + 4, ...; then (0 + 1) + (2 + 3), times
// `scale`. Below 2^-64 it is 0, which changes no P.
// Threads: a threadgroup of 32 G threads owns HG heads of one row, which share a decoded column. A SIMD group scores 8
// window columns, or 8 NC compressed ones, AT groups of 16 elements at a time; no threadgroup holds both kinds. Grid
// (tiles of columns by threadgroups of heads, R rows).
#include "dots.h"

template <
    int H,      // heads
    int D,      // elements of a head
    int RD,     // of which the last are turned
    int HG,     // heads of a threadgroup, which share decoded columns
    int G,      // SIMD groups of a threadgroup
    int NC,     // compressed columns a lane scores, 8 apart
    int AT,     // groups of 16 elements on their way at once
    bool WIDE>  // rows begin at multiples of 16 bytes
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
  P_SHARED AttendQuad turned[HG * P_QUERY_SUM(D)];
  P_TG float* query = (P_TG float*)turned;
  uint lane = thread_index_in_simdgroup, group = simdgroup_index_in_threadgroup;
  uint head = threadgroup_position_in_grid.x % uint(H / HG) * uint(HG),
       tile = threadgroup_position_in_grid.x / uint(H / HG);
  ulong row = threadgroup_position_in_grid.y;
  // ---- which columns are this SIMD group's: of the window, or of the compressed rows
  uint w = uint(sizes[1]), k = uint(sizes[3]), all = uint(sizes[4]);
  uint near_tiles = (w + uint(8 * G - 1)) / uint(8 * G);
  bool near = tile < near_tiles;
  uint first = near ? (tile * uint(G) + group) * 8u : w + ((tile - near_tiles) * uint(G) + group) * uint(8 * NC);
  int places[NC];
  #pragma unroll
  for (int c = 0; c < NC; c++) {
    uint column = first + uint(8 * c) + (lane & 7u);
    places[c] = -1;
    if (near && column < w) places[c] = window_places[row * w + column];
    if (!near && column < w + k) places[c] = packed_places[row * k + (column - w)];
  }
  // ---- queries into threadgroup memory, then the scores: dots.h
  const P_DEV bfloat16_t* mine = q + (row * uint(H) + head) * uint(D);
  const P_DEV float* angles = table + row * uint(RD);
  P_DEV float* to = scores + (row * uint(H) + head) * all + first;
  uint me = thread_index_in_threadgroup;
  if (near) {
    attend_task<HG, D, RD, 32 * G, 1, AT, true, WIDE>(
        mine, angles, query, window, window_new, sizes[0], places, me, lane, scale[0], to, all, int(w) - int(first));
  } else {
    attend_task<HG, D, RD, 32 * G, NC, AT, false, WIDE>(
        mine, angles, query, packed, packed_new, sizes[2], places, me, lane, scale[0], to, all, int(all) - int(first));
  }
}
