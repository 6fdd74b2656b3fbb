// A block's packed rows on their way to the outputs of attention, straight from where they lie: a SIMD group adds P
// times value, column after column, for 32 E elements of HG heads, E neighbouring ones a lane. Knows no score.
#pragma once
#include "rows.h"

// Where columns' rows lie: in a cache, or beyond its `held` rows among this round's.
struct AttendRuns {
  const P_DEV uchar* window;
  const P_DEV uchar* window_new;
  const P_DEV uchar* packed;
  const P_DEV uchar* packed_new;
  int held;
  int packed_held;
};
// BYTES bytes of codes, the first one lowest in the first word; one load where rows are WIDE.
template <
    int BYTES,  // bytes of codes
    bool WIDE>  // rows begin at multiples of 16 bytes
P_FN void attend_codes(const P_DEV uchar* at, P_THREAD uint* word) {
  if (BYTES >= 4) {
    attend_words<(BYTES >= 4 ? BYTES / 4 : 1), WIDE>(at, word);
  } else if (BYTES == 2 && WIDE) {
    word[0] = uint(*(const P_DEV ushort*)at);
  } else {
    word[0] = attend_bytes(at, uint(BYTES));
  }
}
// What N columns of one kind hold of elements first .. first + E - 1: codes and scale bytes, zeros where a column is
// empty.
template <
    int D,      // elements of a head
    int E,      // neighbouring elements of an output that a lane sums
    int N,      // columns at once
    bool NEAR,  // window rows, else compressed ones
    bool WIDE>  // rows begin at multiples of 16 bytes
P_FN void attend_fetch(
    const P_DEV uchar* cache, const P_DEV uchar* fresh, int held, const P_TG int* place, uint first,
    P_THREAD uint* code, P_THREAD uint* scale) {
  constexpr int BYTES = NEAR ? E : E / 2, WORDS = BYTES < 4 ? 1 : BYTES / 4;
  #pragma unroll
  for (int c = 0; c < N; c++) {
    int at = place[c];
    scale[c] = 0u;
    #pragma unroll
    for (int i = 0; i < WORDS; i++) code[c * WORDS + i] = 0u;
    if (at >= 0) {
      const P_DEV uchar* row = attend_row(cache, fresh, held, at, uint(P_ROW_BYTES(D, NEAR)));
      attend_codes<BYTES, WIDE>(row + (NEAR ? first : first / 2u), code + c * WORDS);
      scale[c] = row[uint(P_CODE_BYTES(D, NEAR)) + first / (NEAR ? 32u : 16u)];
    }
  }
}
// N weights: one, or N at a multiple of four.
template <int N>  // columns at once
P_FN void attend_weights(const P_TG float* p, P_THREAD float* weight) {
  #pragma unroll
  for (int i = 0; i < N; i += 4) {
    if (N == 1) {
      weight[0] = p[0];
    } else {
      float4 four = ((const P_TG AttendQuad*)p)[i / 4].at;
      weight[i] = four.x;
      weight[(i + 1) % N] = four.y;
      weight[(i + 2) % N] = four.z;
      weight[(i + 3) % N] = four.w;
    }
  }
}
// Those columns in order, weights from p on: sum[h * E + e] = fma(P, value, sum).
template <
    int HG,     // heads of a threadgroup, which share decoded columns
    int E,      // neighbouring elements of an output that a lane sums
    int SPAN,   // columns at a time, whole blocks of 64
    int N,      // columns at once
    bool NEAR>  // window rows, else compressed ones
P_FN void attend_add(const P_THREAD uint* code, const P_THREAD uint* scale, const P_TG float* p, P_THREAD float* sum) {
  constexpr int BYTES = NEAR ? E : E / 2, WORDS = BYTES < 4 ? 1 : BYTES / 4, EACH = NEAR ? 4 : 8;
  float weight[HG * N];
  #pragma unroll
  for (int h = 0; h < HG; h++) attend_weights<N>(p + h * SPAN, weight + h * N);
  #pragma unroll
  for (int c = 0; c < N; c++) {
    float v[E < EACH ? EACH : E], unit = attend_unit<NEAR>(scale[c]);
    #pragma unroll
    for (int i = 0; i < WORDS; i++) attend_decoded<NEAR>(code[c * WORDS + i], v + i * EACH);
    #pragma unroll
    for (int e = 0; e < E; e++) v[e] = p_mul(v[e], unit);
    #pragma unroll
    for (int h = 0; h < HG; h++) {
      #pragma unroll
      for (int e = 0; e < E; e++) sum[h * E + e] = p_fma(weight[h * N + c], v[e], sum[h * E + e]);
    }
  }
}
// `count` columns of one kind, a multiple of N; the next N are on their way while N are added, but for single ones.
template <
    int HG,     // heads of a threadgroup, which share decoded columns
    int D,      // elements of a head
    int E,      // neighbouring elements of an output that a lane sums
    int SPAN,   // columns at a time, whole blocks of 64
    int N,      // columns at once
    bool NEAR,  // window rows, else compressed ones
    bool WIDE>  // rows begin at multiples of 16 bytes
P_FN void attend_columns(
    const P_DEV uchar* cache, const P_DEV uchar* fresh, int held, const P_TG int* place, const P_TG float* p,
    uint count, uint first, P_THREAD float* sum) {
  constexpr int BYTES = NEAR ? E : E / 2, WORDS = N * (BYTES < 4 ? 1 : BYTES / 4);
  constexpr bool AHEAD = N > 1;
  uint code[WORDS], scale[N], later[WORDS], later_scale[N];
  #pragma unroll 1
  for (uint c = 0u; c < count + (AHEAD ? uint(N) : 0u); c += uint(N)) {
    // one text for the first fetch, the rounds and the last addition: short code is fetched sooner
    if (c < count)
      attend_fetch<D, E, N, NEAR, WIDE>(
          cache, fresh, held, place + c, first, AHEAD ? later : code, AHEAD ? later_scale : scale);
    if (!AHEAD) attend_add<HG, E, SPAN, N, NEAR>(code, scale, p + c, sum);
    if (AHEAD && c > 0u) attend_add<HG, E, SPAN, N, NEAR>(code, scale, p + c - uint(N), sum);
    #pragma unroll
    for (int i = 0; i < WORDS && AHEAD; i++) code[i] = later[i];
    #pragma unroll
    for (int i = 0; i < N && AHEAD; i++) scale[i] = later_scale[i];
  }
}
// The 64 columns from `column` on, of which those below `near` are the window's; what is empty from some sixteen on is
// left out.
template <
    int HG,     // heads of a threadgroup, which share decoded columns
    int D,      // elements of a head
    int E,      // neighbouring elements of an output that a lane sums
    int SPAN,   // columns at a time, whole blocks of 64
    bool WIDE>  // rows begin at multiples of 16 bytes
P_FN void attend_block(
    AttendRuns runs, const P_TG int* place, const P_TG uint* used, const P_TG float* p, uint column, uint near,
    uint first, P_THREAD float* sum) {
  constexpr int N = 4;
  uint count = 64u, close = near <= column ? 0u : p_minu(near - column, 64u);
  while (count > 0u && used[(column + count) / 16u - 1u] == 0u) count -= 16u;
  if (count == 0u) return;
  uint even = close < count ? close / uint(N) * uint(N) : count;
  if (even > 0u) {
    attend_columns<HG, D, E, SPAN, N, true, WIDE>(
        runs.window, runs.window_new, runs.held, place + column, p + column, even, first, sum);
  }
  #pragma unroll 1
  for (uint c = even; c < count && c % uint(N) + (c < close ? 1u : 0u) != 0u; c++) {
    // one by one where window and compressed columns meet
    if (c < close) {
      attend_columns<HG, D, E, SPAN, 1, true, WIDE>(
          runs.window, runs.window_new, runs.held, place + column + c, p + column + c, 1u, first, sum);
    } else {
      attend_columns<HG, D, E, SPAN, 1, false, WIDE>(
          runs.packed, runs.packed_new, runs.packed_held, place + column + c, p + column + c, 1u, first, sum);
    }
    even = c + 1u;
  }
  if (even < count) {
    attend_columns<HG, D, E, SPAN, N, false, WIDE>(
        runs.packed, runs.packed_new, runs.packed_held, place + column + even, p + column + even, count - even, first,
        sum);
  }
}
