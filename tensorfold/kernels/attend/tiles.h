// Sixteen packed rows at a time on their way to the outputs of attention: fetched into registers, put into threadgroup memory,
// added to the outputs column after column. A threadgroup takes W elements of every row, from W * share on. Knows no score.
#pragma once
#include "rows.h"

// Bytes of a row in threadgroup memory: codes, then scales as float.
#define P_SLOT(W) (((W) + ((W) / 8 < 16 ? 16 : (W) / 8) + 15) / 16 * 16)
// What each of N threads holds of a tile: pieces of 16 bytes of codes, words of 4 scales.
#define P_PIECES(W, N) (((W) + (N) - 1) / (N))
#define P_SCALE_WORDS(W) (((W) / 16 + 3) / 4)
#define P_WORDS(W, N) ((16 * P_SCALE_WORDS(W) + (N) - 1) / (N))

// Where columns' rows lie: in a cache, or beyond its `held` rows among this round's.
struct AttendRuns {
  const P_DEV uchar* window;
  const P_DEV uchar* window_new;
  const P_DEV uchar* packed;
  const P_DEV uchar* packed_new;
  int held;
  int packed_held;
};
template <int D>
P_FN const P_DEV uchar* attend_row_of(AttendRuns runs, int place, bool near) {
  return near ? attend_row(runs.window, runs.window_new, runs.held, place, uint(P_ROW_BYTES(D, true)))
              : attend_row(runs.packed, runs.packed_new, runs.packed_held, place, uint(P_ROW_BYTES(D, false)));
}
// The row in its tile of the i-th piece of codes, and which piece of the row that is.
template <int W>
P_FN uint attend_piece(uint i, bool far, P_THREAD uint& piece) {
  piece = far ? i % uint(W / 32) : i % uint(W / 16);
  return far ? i / uint(W / 32) : i / uint(W / 16);
}
// Thread `me` of N fetches its pieces of a tile; columns below `near` are the window's, empty ones give zeros.
template <int D, int W, int N, bool WIDE>
P_FN void attend_fetch(
    AttendRuns runs, const P_TG int* place, uint tile, uint near, uint share, uint me, P_THREAD uint4* pieces, P_THREAD uint* words) {
  bool far = tile * 16u >= near;
  #pragma unroll
  for (int i = 0; i < P_PIECES(W, N); i++) {
    uint piece, row = attend_piece<W>(me + uint(i * N), far, piece), column = tile * 16u + row, word[4];
    bool close = column < near;
    #pragma unroll
    for (int j = 0; j < 4; j++) word[j] = 0u;
    if (row < 16u && (close || piece < uint(W / 32))) {
      int at = place[column];
      if (at >= 0) attend_words<4, WIDE>(attend_row_of<D>(runs, at, close) + share * uint(close ? W : W / 2) + piece * 16u, word);
    }
    pieces[i].x = word[0];
    pieces[i].y = word[1];
    pieces[i].z = word[2];
    pieces[i].w = word[3];
  }
  #pragma unroll
  for (int i = 0; i < P_WORDS(W, N); i++) {
    uint x = me + uint(i * N), row = x / uint(P_SCALE_WORDS(W)), first = x % uint(P_SCALE_WORDS(W)) * 4u;
    uint column = tile * 16u + row, count = column < near ? uint(W / 32) : uint(W / 16);
    words[i] = 0u;
    if (row < 16u && first < count) {
      int at = place[column];
      if (at >= 0) {
        bool close = column < near;
        const P_DEV uchar* scales = attend_row_of<D>(runs, at, close) + uint(close ? D : D / 2) + share * count + first;
        if (WIDE) {
          attend_words<1, true>(scales, words + i);
        } else {
          words[i] = attend_bytes(scales, count - first);
        }
      }
    }
  }
}
// What was fetched goes to threadgroup memory, scales decoded.
template <int W, int N>
P_FN void attend_put(
    P_TG uchar* slots, uint tile, uint near, uint me, const P_THREAD uint4* pieces, const P_THREAD uint* words) {
  bool far = tile * 16u >= near;
  #pragma unroll
  for (int i = 0; i < P_PIECES(W, N); i++) {
    uint piece, row = attend_piece<W>(me + uint(i * N), far, piece);
    if (row < 16u && (tile * 16u + row < near || piece < uint(W / 32))) {
      *(P_TG uint4*)(slots + row * uint(P_SLOT(W)) + piece * 16u) = pieces[i];
    }
  }
  #pragma unroll
  for (int i = 0; i < P_WORDS(W, N); i++) {
    uint x = me + uint(i * N), row = x / uint(P_SCALE_WORDS(W)), first = x % uint(P_SCALE_WORDS(W)) * 4u;
    bool close = tile * 16u + row < near;
    if (row < 16u && first < uint(close ? W / 32 : W / 16)) {
      P_TG float* unit = (P_TG float*)(slots + row * uint(P_SLOT(W)) + uint(close ? W : W / 2)) + first;
      #pragma unroll
      for (uint j = 0u; j < 4u; j++) {
        uint byte = words[i] >> (8u * j) & 255u;
        unit[j] = close ? attend_unit<true>(byte) : attend_unit<false>(byte);
      }
    }
  }
}
// N columns in order, from a tile's row `slot` on: acc[h * E + e] = fma(P, value, acc) for HG heads and elements first .. first + E - 1.
template <int HG, int E, int W, int SPAN, int N, bool NEAR>
P_FN void attend_columns(const P_TG uchar* slot, const P_TG float* p, uint first, P_THREAD float* acc) {
  constexpr int SHARE = NEAR ? 4 / E : 8 / E, JOIN = N < SHARE ? N : SHARE, BITS = NEAR ? 8 * E : 4 * E;  // columns of a word
  float weight[HG * N];
  #pragma unroll
  for (int h = 0; h < HG; h++) {
    if (N % 4 == 0) {
      #pragma unroll
      for (int c = 0; c < N; c += 4) {
        float4 q = *(const P_TG float4*)(p + h * SPAN + c);
        weight[h * N + c] = q.x;
        weight[h * N + c + 1 % N] = q.y;
        weight[h * N + c + 2 % N] = q.z;
        weight[h * N + c + 3 % N] = q.w;
      }
    } else {
      #pragma unroll
      for (int c = 0; c < N; c++) weight[h * N + c] = p[h * SPAN + c];
    }
  }
  #pragma unroll
  for (int c = 0; c < N; c += JOIN) {
    uint word = 0u;
    float v[8], unit[JOIN];
    #pragma unroll
    for (int i = 0; i < JOIN; i++) {
      const P_TG uchar* row = slot + (c + i) * P_SLOT(W);
      const P_TG uchar* at = row + (NEAR ? first : first / 2u);
      uint codes = BITS == 32 ? *(const P_TG uint*)at : BITS == 16 ? uint(*(const P_TG ushort*)at) : uint(*at);
      word = word | (codes << (BITS * i & 31));
      unit[i] = ((const P_TG float*)(row + (NEAR ? W : W / 2)))[first / (NEAR ? 32u : 16u)];
    }
    attend_values<NEAR>(word, v);
    #pragma unroll
    for (int i = 0; i < JOIN * E; i++) v[i] = p_mul(v[i], unit[i / E]);
    #pragma unroll
    for (int h = 0; h < HG; h++) {
      #pragma unroll
      for (int i = 0; i < JOIN; i++) {
        #pragma unroll
        for (int e = 0; e < E; e++) acc[h * E + e] = p_fma(weight[h * N + c + i], v[i * E + e], acc[h * E + e]);
      }
    }
  }
}
// The 16 columns of a tile, its rows at `slots`, weights from p on.
template <int HG, int E, int W, int SPAN>
P_FN void attend_tile(const P_TG uchar* slots, const P_TG float* p, uint tile, uint near, uint first, P_THREAD float* acc) {
  constexpr int N = HG > 2 ? 4 : 8;
  if (tile * 16u + 16u <= near) {
    #pragma unroll
    for (int j = 0; j < 16; j += N) attend_columns<HG, E, W, SPAN, N, true>(slots + j * P_SLOT(W), p + j, first, acc);
  } else if (tile * 16u >= near) {
    #pragma unroll
    for (int j = 0; j < 16; j += N) attend_columns<HG, E, W, SPAN, N, false>(slots + j * P_SLOT(W), p + j, first, acc);
  } else {
    #pragma unroll 1
    for (int j = 0; j < 16; j++) {
      if (tile * 16u + uint(j) < near) {
        attend_columns<HG, E, W, SPAN, 1, true>(slots + j * P_SLOT(W), p + j, first, acc);
      } else {
        attend_columns<HG, E, W, SPAN, 1, false>(slots + j * P_SLOT(W), p + j, first, acc);
      }
    }
  }
}
