// Attention with a sink over packed rows by place; keys and values are the same row. Columns: W window places, then K places
// of compressed rows, in blocks of 64; an empty place (-1) is skipped and changes no bit. Queries are turned by their row's
// angles (last RD elements of a head) as they are read, outputs turned back as they are written.
// Order, of each row and head: q turned and rounded to bfloat16, the bits of `rope`. A score is four running sums of fma (sum i takes the groups of 16 elements i, i + 4, ...),
// (0 + 1) + (2 + 3), times `scale`. Block by block: top = max(top, scores), top begins at -1e30; p = exp(score - top);
// shrink = exp(old top - top); total = fma(total, shrink, sum of p), that sum over lanes: columns j and j + 32 first, then
// distances 16, 8, 4, 2, 1. An output is out * shrink, then fma(P, value) over the block's columns in order, P = bf16(p), 0
// below 2^-64. At the end out / (total + exp(sink - top)), rounded to bfloat16, turned back, rounded again.
// A threadgroup of 32 G threads owns HG heads of one row and one of S shares of their elements. It takes SPAN columns at a time,
// so that loads wait for nothing: all scores (window columns one by one, compressed ones NC to a thread), every block's peak, all
// P, then tiles of 16 columns that teams of threads bring while the first threads, E elements each of every head, add the one before.
// WIDE: rows begin at multiples of 16 bytes.
#include "dots.h"
#include "maths.h"
#include "rope/turn.h"
#include "tiles.h"

template <int H, int D, int RD, int HG, int G, int E, int S, int NC, int SPAN, bool WIDE>
[[kernel]] void attend(
    const device bfloat16_t* q,       // [R, H, D], not turned
    const device float* table,        // [R, RD / 2, 2]: cos, sin
    const device uchar* window,       // [N, D + D / 32]
    const device uchar* window_new,   // [M, D + D / 32]
    const device int* window_places,  // [R, W]
    const device uchar* packed,       // [L, D / 2 + D / 16]
    const device uchar* packed_new,   // [P, D / 2 + D / 16]
    const device int* packed_places,  // [R, K]
    const device float* sink,         // [H]
    const constant float* scale,      // [1]
    const constant int* sizes,        // [4]: N, W, L, K
    device bfloat16_t* out,           // [R, H, D]
    uint3 threadgroup_position_in_grid [[threadgroup_position_in_grid]],
    uint thread_index_in_simdgroup [[thread_index_in_simdgroup]],
    uint simdgroup_index_in_threadgroup [[simdgroup_index_in_threadgroup]],
    uint thread_index_in_threadgroup [[thread_index_in_threadgroup]]) {
  constexpr int T = 32 * G, WIDTH = D / S, ADDERS = WIDTH / E, FIRST = (ADDERS + 31) / 32;  // SIMD groups that add
  constexpr int TW = WIDTH < 128 ? 1 : WIDTH / 128, TEAM = 32 * TW, TEAMS = (G - FIRST) / TW, BLOCKS = SPAN / 64,
                PLACES = (SPAN + T - 1) / T;
  constexpr int QUERY = 4 * P_QUERY_SUM(D), TILE = 16 * P_SLOT(WIDTH);
  constexpr int ROOM = HG * QUERY * 4 > 2 * TILE ? HG * QUERY * 4 : 2 * TILE;
  constexpr uint STILL = uint(D - RD) / 2u;  // pairs of a head that are not turned
  P_SHARED AttendQuad work[ROOM / 16];  // queries, then two tiles
  P_SHARED AttendQuad weights[HG * SPAN / 4];
  P_SHARED int place[SPAN];
  P_SHARED uint used[SPAN / 16];
  P_SHARED uint live[SPAN / 16];
  P_SHARED uint live_count[1];
  P_SHARED float peak[HG * BLOCKS];
  P_SHARED float shrink[HG * BLOCKS];
  P_SHARED float part[HG * BLOCKS];
  P_SHARED float top[HG];
  P_SHARED float divisor[HG];
  P_TG float* query = (P_TG float*)work;
  P_TG uchar* slots = (P_TG uchar*)work;
  P_TG float* score = (P_TG float*)weights;
  uint lane = thread_index_in_simdgroup, group = simdgroup_index_in_threadgroup, me = thread_index_in_threadgroup;
  uint share = threadgroup_position_in_grid.x % uint(S), head = threadgroup_position_in_grid.x / uint(S) * uint(HG);
  ulong row = threadgroup_position_in_grid.y;
  uint w = uint(sizes[1]), columns = uint(sizes[1] + sizes[3]);
  ulong start = (row * uint(H) + head) * uint(D);
  ulong angles = row * uint(RD);
  AttendRuns runs;
  runs.window = window;
  runs.window_new = window_new;
  runs.packed = packed;
  runs.packed_new = packed_new;
  runs.held = sizes[0];
  runs.packed_held = sizes[2];
  // of threads that bring rows: their team and number in it
  uint team = group < uint(FIRST) ? uint(TEAMS) : (group - uint(FIRST)) / uint(TW), mate = (me - uint(32 * FIRST)) % uint(TEAM);
  uint own_head = uint(T - 1) - me;  // below HG in the threads that keep a head's sum
  float acc[HG * E], total = 0.0f;
  for (int i = 0; i < HG * E; i++) acc[i] = 0.0f;
  if (own_head < uint(HG)) top[own_head] = -1.0e30f;
  #pragma unroll 1
  for (uint base = 0u; base == 0u || base < columns; base += uint(SPAN)) {
    uint near = w <= base ? 0u : p_minu(w - base, uint(SPAN)), here = p_minu(p_maxu((columns - base + 63u) / 64u, 1u) * 64u, uint(SPAN));
    int found[PLACES];
    #pragma unroll
    for (int i = 0; i < PLACES; i++) {
      uint column = base + uint(i * T) + me;
      found[i] = -1;
      if (column < w && column < base + here) found[i] = window_places[row * w + column];
      if (column >= w && column < columns && column < base + here) found[i] = packed_places[row * (columns - w) + (column - w)];
    }
    #pragma unroll 1
    for (uint i = me; i < uint(HG * D / 2); i += uint(T)) {
      uint pair = i % uint(D / 2), d = 2u * pair;
      float v[2];
      v[0] = p_load(q[start + 2u * i]);
      v[1] = p_load(q[start + 2u * i + 1u]);
      if (pair >= STILL) {
        ulong at = angles + 2u * (pair - STILL);
        rope_turn<false>(v, table[at], table[at + 1u]);
      }
      uint to = i / uint(D / 2) * uint(QUERY) + d / 16u % 4u * uint(P_QUERY_SUM(D)) + d / 64u * 16u + d % 16u;
      query[to] = p_round_bf(v[0]);
      query[to + 1u] = p_round_bf(v[1]);
    }
    #pragma unroll
    for (int i = 0; i < PLACES; i++) {
      uint at = uint(i * T) + me, both = p_laneor(found[i] < 0 ? 0u : lane < 16u ? 1u : 2u);
      if (at < here) place[at] = found[i];
      if (at < here && (lane & 15u) == 0u) used[at / 16u] = both >> (lane / 16u) & 1u;
    }
    P_BARRIER();
    if (me < here / 16u) {
      uint before = 0u;
      for (uint i = 0u; i < me; i++) before = before + used[i];
      if (used[me] != 0u) live[before] = me;
      if (me == here / 16u - 1u) live_count[0] = before + used[me];
    }
    uint close_tasks = (near + 7u) / 8u, tasks = close_tasks + (here - near + uint(8 * NC - 1)) / uint(8 * NC);
    #pragma unroll 1
    for (uint task = group; task < tasks; task += uint(G)) {
      if (task < close_tasks) {
        attend_scores<HG, D, 1, SPAN, true, WIDE>(
            query, window, window_new, runs.held, place, 8u * task, near, lane, scale[0], score);
      } else {
        attend_scores<HG, D, NC, SPAN, false, WIDE>(
            query, packed, packed_new, runs.packed_held, place, near + (task - close_tasks) * uint(8 * NC), here, lane, scale[0], score);
      }
    }
    P_BARRIER();
    uint tiles = live_count[0];
    uint4 pieces[P_PIECES(WIDTH, TEAM)];
    uint words[P_WORDS(WIDTH, TEAM)];
    if (team < uint(TEAMS) && team < tiles) {
      attend_fetch<D, WIDTH, TEAM, WIDE>(runs, place, live[team], near, share, mate, pieces, words);
    }
    uint blocks = here / 64u;
    for (uint task = group; task < uint(HG) * blocks; task += uint(G)) {
      uint h = task % uint(HG), block = task / uint(HG), j = h * uint(SPAN) + block * 64u + lane;
      float highest = p_lanemax(p_max(score[j], score[j + 32u]));
      if (lane == 0u) peak[h * uint(BLOCKS) + block] = highest;
    }
    P_BARRIER();
    for (uint task = group; task < uint(HG) * blocks; task += uint(G)) {
      uint h = task % uint(HG), block = task / uint(HG), j = h * uint(SPAN) + block * 64u + lane, at = h * uint(BLOCKS);
      float old = top[h];
      for (uint b = 0u; b < block; b++) old = p_max(old, peak[at + b]);
      float now = p_max(old, peak[at + block]);
      bool a = place[block * 64u + lane] >= 0, b = place[block * 64u + lane + 32u] >= 0;
      float low = a ? p_exp(p_sub(score[j], now)) : 0.0f;
      float high = b ? p_exp(p_sub(score[j + 32u], now)) : 0.0f;
      float sum = p_lanesum(p_add(low, high));
      if (lane == 0u) {
        shrink[at + block] = p_exp(p_sub(old, now));
        part[at + block] = sum;
      }
      // an empty column's values are +0 and its P is -0: adding their product, -0, changes nothing
      low = low < 5.42101086e-20f ? 0.0f : p_round_bf(low);
      high = high < 5.42101086e-20f ? 0.0f : p_round_bf(high);
      score[j] = a ? low : p_neg(0.0f);
      score[j + 32u] = b ? high : p_neg(0.0f);
    }
    P_BARRIER();
    if (own_head < uint(HG)) {
      float highest = top[own_head];
      for (uint i = own_head * uint(BLOCKS); i < own_head * uint(BLOCKS) + blocks; i++) {
        total = p_fma(total, shrink[i], part[i]);
        highest = p_max(highest, peak[i]);
      }
      top[own_head] = highest;
      divisor[own_head] = p_add(total, p_exp(p_sub(p_load(sink[head + own_head]), highest)));
    }
    // while tile t is put, tile t - 1 is added
    uint seen = uint(BLOCKS);
    #pragma unroll 1
    for (uint t = 0u; t <= tiles; t++) {
      if (t < tiles && t % uint(TEAMS) == team) {
        attend_put<WIDTH, TEAM>(slots + (t & 1u) * uint(TILE), live[t], near, mate, pieces, words);
        if (t + uint(TEAMS) < tiles) {
          attend_fetch<D, WIDTH, TEAM, WIDE>(runs, place, live[t + uint(TEAMS)], near, share, mate, pieces, words);
        }
      } else if (t > 0u && me < uint(ADDERS)) {
        uint tile = live[t - 1u];
        if (tile / 4u != seen) {
          seen = tile / 4u;
          for (int h = 0; h < HG; h++) {
            float less = shrink[uint(h * BLOCKS) + seen];
            for (int i = 0; i < E; i++) acc[h * E + i] = p_mulz(acc[h * E + i], less);
          }
        }
        attend_tile<HG, E, WIDTH, SPAN>(slots + (t - 1u & 1u) * uint(TILE), score + tile * 16u, tile, near, me * uint(E), acc);
      }
      P_BARRIER();
    }
  }
  if (me < uint(ADDERS)) {
    for (int h = 0; h < HG; h++) {
      for (uint i = 0u; i < uint(E); i += 2u) {
        uint pair = (share * uint(WIDTH) + me * uint(E) + i) / 2u;
        float v[2];
        v[0] = p_round_bf(p_div(acc[uint(h * E) + i], divisor[h]));
        v[1] = p_round_bf(p_div(acc[uint(h * E) + i + 1u], divisor[h]));
        if (pair >= STILL) {
          ulong at = angles + 2u * (pair - STILL);
          rope_turn<true>(v, table[at], table[at + 1u]);
        }
        p_store(out + start + uint(h * D) + 2u * pair, v[0]);
        p_store(out + start + uint(h * D) + 2u * pair + 1u, v[1]);
      }
    }
  }
}
