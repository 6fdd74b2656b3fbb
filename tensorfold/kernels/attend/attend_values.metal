// What attention gives, of its scores: softmax with a sink over columns, times packed rows by place, which are keys and
// values alike. Columns: W window places, then K places of compressed rows, then empty ones up to C, a multiple of 64.
// They go in blocks of 64. An empty place (-1) is skipped and changes no bit.
//
// Order, of each row and head, block by block:
//   top = max(top, scores), from -1e30 on
//   p = exp(score - top), P = bf16(p), 0 below 2^-64
//   shrink = exp(old top - top)
//   total = fma(total, shrink, sum of p): columns j and j + 32 first, then over lanes at distances 16, 8, 4, 2, 1
//   part = fma(P, value, part) from 0 over the block's columns in order
//   out = out * shrink + part
// At the end out / (total + exp(sink - top)), rounded to bfloat16, turned back by the row's angles (the last RD
// elements of a head), rounded again.
// Threads: a threadgroup of 32 G threads owns HG heads of one row and one of S shares of their elements. It takes SPAN
// columns at a time: every block's peak, then all P, then the blocks' parts. A SIMD group makes the part of 32 E
// elements; where fewer groups than G make a whole part, SPLIT blocks stand beside one another and their parts meet in
// threadgroup memory. Grid (shares by threadgroups of heads, R rows).
#include "blocks.h"
#include "maths.h"
#include "turn.h"

template <
    int H,      // heads
    int D,      // elements of a head
    int RD,     // of which the last are turned
    int HG,     // heads of a threadgroup, which share decoded columns
    int G,      // SIMD groups of a threadgroup
    int E,      // neighbouring elements of an output that a lane sums
    int S,      // shares of a head's elements, a threadgroup each
    int SPAN,   // columns at a time, whole blocks of 64
    bool WIDE>  // rows begin at multiples of 16 bytes
[[kernel]] void attend_values(
    const device float* scores,       // [R, H, C]
    const device float* table,        // [R, RD / 2, 2]: cos, sin
    const device uchar* window,       // [N, D + D / 32]
    const device uchar* window_new,   // [M, D + D / 32]
    const device int* window_places,  // [R, W]
    const device uchar* packed,       // [L, D / 2 + D / 16]
    const device uchar* packed_new,   // [P, D / 2 + D / 16]
    const device int* packed_places,  // [R, K]
    const device float* sink,         // [H]
    const constant int* sizes,        // [5]: N, W, L, K, C
    device bfloat16_t* out,           // [R, H, D]
    uint3 threadgroup_position_in_grid [[threadgroup_position_in_grid]],
    uint thread_index_in_simdgroup [[thread_index_in_simdgroup]],
    uint simdgroup_index_in_threadgroup [[simdgroup_index_in_threadgroup]],
    uint thread_index_in_threadgroup [[thread_index_in_threadgroup]]) {
  // WIDTH: elements of a share. SLICES: SIMD groups that make one block's part. SPLIT: blocks beside one another.
  // PLACES, TASKS: columns a thread looks up, and blocks of heads a SIMD group takes, in one span.
  constexpr int T = 32 * G, WIDTH = D / S, SLICES = WIDTH / (32 * E), SPLIT = G / SLICES, BLOCKS = SPAN / 64,
                PLACES = (SPAN + T - 1) / T, TASKS = (HG * BLOCKS + G - 1) / G;
  constexpr int PART = HG * WIDTH, BESIDE = SPLIT < BLOCKS ? SPLIT : BLOCKS;
  constexpr int PAIRS = SPLIT < 2 ? HG * E / 2 : (PART / 2 + T - 1) / T;  // pairs of outputs that a thread owns
  constexpr uint STILL = uint(D - RD) / 2u;                              // pairs of a head that are not turned
  P_SHARED float parts[SPLIT < 2 ? 1 : BESIDE * PART];  // blocks' parts of the outputs, where they meet
  P_SHARED AttendQuad weights[HG * SPAN / 4];           // P of every head and column
  P_SHARED int place[SPAN];                             // where a column's row lies, -1 where it is empty
  P_SHARED uint used[SPAN / 16];                        // whether any of sixteen columns is not empty
  P_SHARED float peak[HG * BLOCKS];                     // highest score of a head and block
  P_SHARED float shrink[HG * BLOCKS];                   // what the outputs before a block shrink by
  P_SHARED float sums[HG * BLOCKS];                     // sum of a block's p
  P_SHARED float top[HG];                               // a head's running maximum
  P_SHARED float divisor[HG];                           // what a head's outputs are divided by
  P_TG float* weight = (P_TG float*)weights;
  uint lane = thread_index_in_simdgroup, group = simdgroup_index_in_threadgroup, me = thread_index_in_threadgroup;
  uint share = threadgroup_position_in_grid.x % uint(S), head = threadgroup_position_in_grid.x / uint(S) * uint(HG);
  ulong row = threadgroup_position_in_grid.y;
  uint w = uint(sizes[1]), k = uint(sizes[3]), all = uint(sizes[4]);
  ulong start = (row * uint(H) + head) * uint(D);
  ulong angles = row * uint(RD);
  AttendRuns runs;
  runs.window = window;
  runs.window_new = window_new;
  runs.packed = packed;
  runs.packed_new = packed_new;
  runs.held = sizes[0];
  runs.packed_held = sizes[2];
  // a SIMD group's slice of the elements, and which of the blocks beside one another it takes
  uint slice = group % uint(SLICES), turn = group / uint(SLICES);
  uint first = share * uint(WIDTH) + (32u * slice + lane) * uint(E);
  uint own_head = uint(T - 1) - me;  // below HG in the threads that keep a head's sum
  float out_of[2 * PAIRS], total = 0.0f;
  #pragma unroll
  for (int i = 0; i < 2 * PAIRS; i++) out_of[i] = 0.0f;
  if (own_head < uint(HG)) top[own_head] = -1.0e30f;
  // ---- SPAN columns at a time
  #pragma unroll 1
  for (uint base = 0u; base < all; base += uint(SPAN)) {
    uint near = w <= base ? 0u : p_minu(w - base, uint(SPAN)), here = p_minu(all - base, uint(SPAN)),
         blocks = here / 64u;
    // ---- where the columns' rows lie, and which sixteens of columns hold one
    #pragma unroll
    for (int i = 0; i < PLACES; i++) {
      uint at = uint(i * T) + me, column = base + at;
      int found = -1;
      if (at < here && column < w) found = window_places[row * w + column];
      if (at < here && column >= w && column < w + k) found = packed_places[row * k + (column - w)];
      uint both = p_laneor(found < 0 ? 0u : lane < 16u ? 1u : 2u);
      if (at < here) place[at] = found;
      if (at < here && (lane & 15u) == 0u) used[at / 16u] = both >> (lane / 16u) & 1u;
    }
    // ---- each block's peak
    float low[TASKS], high[TASKS];
    #pragma unroll
    for (int t = 0; t < TASKS; t++) {
      uint task = group + uint(t * G), block = task / uint(HG);
      ulong from = (row * uint(H) + head + task % uint(HG)) * all + base + block * 64u + lane;
      low[t] = block < blocks ? scores[from] : 0.0f;
      high[t] = block < blocks ? scores[from + 32u] : 0.0f;
    }
    #pragma unroll
    for (int t = 0; t < TASKS; t++) {
      uint task = group + uint(t * G), block = task / uint(HG);
      float highest = p_lanemax(p_max(low[t], high[t]));
      if (lane == 0u && block < blocks) peak[task % uint(HG) * uint(BLOCKS) + block] = highest;
    }
    P_BARRIER();
    // ---- P of every column, and each block's sum
    #pragma unroll
    for (int t = 0; t < TASKS; t++) {
      uint task = group + uint(t * G), h = task % uint(HG), block = task / uint(HG), at = h * uint(BLOCKS);
      float now = top[h];
      #pragma unroll
      for (uint b = 0u; b < uint(BLOCKS); b++) now = b <= block && block < blocks ? p_max(now, peak[at + b]) : now;
      uint j = block * 64u + lane;
      bool a = block < blocks && place[j] >= 0, b = block < blocks && place[j + 32u] >= 0;
      low[t] = a ? p_exp(p_sub(low[t], now)) : 0.0f;
      high[t] = b ? p_exp(p_sub(high[t], now)) : 0.0f;
      float sum = p_lanesum(p_add(low[t], high[t]));
      if (lane == 0u && block < blocks) sums[at + block] = sum;
      // an empty column's values are +0 and its P is -0: adding their product, -0, changes nothing
      low[t] = low[t] < 5.42101086e-20f ? 0.0f : p_round_bf(low[t]);
      high[t] = high[t] < 5.42101086e-20f ? 0.0f : p_round_bf(high[t]);
      if (block < blocks) {
        weight[h * uint(SPAN) + j] = a ? low[t] : p_neg(0.0f);
        weight[h * uint(SPAN) + j + 32u] = b ? high[t] : p_neg(0.0f);
      }
    }
    // ---- what each block shrinks by
    if (me < uint(HG) * blocks) {
      uint at = me % uint(HG) * uint(BLOCKS), block = me / uint(HG);
      float old = top[me % uint(HG)];
      for (uint b = 0u; b < block; b++) old = p_max(old, peak[at + b]);
      shrink[at + block] = p_exp(p_sub(old, p_max(old, peak[at + block])));
    }
    P_BARRIER();
    if (own_head < uint(HG)) {  // ---- the running maximum and total of each head
      float highest = top[own_head];
      for (uint i = own_head * uint(BLOCKS); i < own_head * uint(BLOCKS) + blocks; i++) {
        total = p_fma(total, shrink[i], sums[i]);
        highest = p_max(highest, peak[i]);
      }
      top[own_head] = highest;
      divisor[own_head] = p_add(total, p_exp(p_sub(p_load(sink[head + own_head]), highest)));
    }
    // ---- the blocks' parts, SPLIT at a time, added to the outputs in order
    #pragma unroll 1
    for (uint round = 0u; round < blocks; round += uint(SPLIT)) {
      uint block = round + turn;
      float sum[HG * E];
      #pragma unroll
      for (int i = 0; i < HG * E; i++) sum[i] = 0.0f;
      if (block < blocks) attend_block<HG, D, E, SPAN, WIDE>(runs, place, used, weight, 64u * block, near, first, sum);
      if (SPLIT < 2) {
        #pragma unroll
        for (int i = 0; i < 2 * PAIRS; i++) {
          out_of[i] = p_add(p_mulz(out_of[i], shrink[uint(i / E * BLOCKS) + block]), sum[i % (HG * E)]);
        }
      } else {
        #pragma unroll
        for (int i = 0; i < HG * E; i++) {
          if (block < blocks)
            parts[turn * uint(PART) + (uint(i / E * SLICES) + slice) * uint(32 * E) +
                  uint(i % E * 32) + lane] = sum[i];
        }
        P_BARRIER();
        #pragma unroll
        for (int i = 0; i < PAIRS; i++) {
          uint unit = group + uint(i * G), at = unit * 64u + lane, h = unit / uint(SLICES * E / 2);
          for (uint b = round; b < round + uint(SPLIT) && b < blocks && unit < uint(PART / 64); b++) {
            float less = shrink[h * uint(BLOCKS) + b];
            uint from = (b - round) * uint(PART) + at;
            out_of[2 * i] = p_add(p_mulz(out_of[2 * i], less), parts[from]);
            out_of[2 * i + 1] = p_add(p_mulz(out_of[2 * i + 1], less), parts[from + 32u]);
          }
        }
        P_BARRIER();
      }
    }
    if (SPLIT < 2) P_BARRIER();
  }
  // ---- divided, rounded, turned back, rounded
  #pragma unroll
  for (int i = 0; i < PAIRS; i++) {
    // a pair's head, slice and place in its lane: of the SIMD group's own slice, or spread over the threadgroup
    uint unit = SPLIT < 2 ? (uint(2 * i / E * SLICES) + slice) * uint(E / 2) + uint(i % (E / 2)) : group + uint(i * G);
    uint h = unit / uint(SLICES * E / 2), e = 2u * (unit % uint(E / 2)), its = unit / uint(E / 2) % uint(SLICES);
    if (unit < uint(PART / 64)) {
      uint pair = (share * uint(WIDTH) + (32u * its + lane) * uint(E) + e) / 2u;
      float v[2];
      v[0] = p_round_bf(p_div(out_of[2 * i], divisor[h]));
      v[1] = p_round_bf(p_div(out_of[2 * i + 1], divisor[h]));
      if (pair >= STILL) {
        ulong at = angles + 2u * (pair - STILL);
        rope_turn<true>(v, table[at], table[at + 1u]);
      }
      ulong to = start + h * uint(D) + 2u * pair;
      p_store(out + to, v[0]);
      p_store(out + to + 1u, v[1]);
    }
  }
}
