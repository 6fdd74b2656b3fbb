// Scores of attention: eight lanes with a column each, four such groups of lanes for the four running sums. Knows no softmax.
#pragma once
#include "rows.h"

// Rows of `query` in threadgroup memory, in floats: sum by sum, four floats between, so that the four sums lie in other banks.
#define P_QUERY_SUM(D) ((D) / 4 + 4)

// Scale bytes of CH groups of one running sum from group n on, as words; attend_scale_byte takes them apart.
template <int D, int CH, bool NEAR, bool WIDE>
P_FN void attend_scale_words(const P_DEV uchar* scales, uint n, uint part, P_THREAD uint* word) {
  if (WIDE && NEAR) {
    attend_words<CH / 2, true>(scales + 2u * n, word);
  } else if (WIDE) {
    attend_words<CH, true>(scales + 4u * n, word);
  } else {
    word[0] = scales[NEAR ? 2u * n + part / 2u : 4u * n + part];
  }
}
template <bool NEAR, bool WIDE>
P_FN uint attend_scale_byte(const P_THREAD uint* word, uint i, uint part) {
  if (!WIDE) return word[0];
  uint both = NEAR ? word[i / 2u] >> (16u * (i & 1u)) : word[i];
  return both >> (8u * (NEAR ? part / 2u : part)) & 255u;
}
// sum[c * HG + h] of running sum `part`, for HG heads and the NC columns places[0], places[8], ...; loads of CH groups first.
template <int HG, int D, int NC, bool NEAR, bool WIDE>
P_FN void attend_dots(
    const P_TG float* query, const P_DEV uchar* cache, const P_DEV uchar* fresh, int held, const P_THREAD int* places, uint part,
    P_THREAD float* sum) {
  constexpr int CH = !WIDE ? 1 : HG * NC > 4 ? 2 : 4, WORDS = NEAR ? 4 : 2;
  const P_DEV uchar* row[NC];
  #pragma unroll
  for (int c = 0; c < NC; c++) row[c] = attend_row(cache, fresh, held, places[c] < 0 ? 0 : places[c], uint(P_ROW_BYTES(D, NEAR)));
  #pragma unroll 1
  for (uint n = 0u; n < uint(D / 64); n += uint(CH)) {
    uint code[NC * CH * WORDS], scale[NC * CH];
    #pragma unroll
    for (int c = 0; c < NC; c++) {
      #pragma unroll
      for (int i = 0; i < CH * WORDS; i++) code[c * CH * WORDS + i] = 0u;
      #pragma unroll
      for (int i = 0; i < CH; i++) scale[c * CH + i] = 0u;
      if (places[c] >= 0) {
        #pragma unroll
        for (int i = 0; i < CH; i++) {
          attend_words<WORDS, WIDE>(row[c] + ((n + uint(i)) * 4u + part) * uint(4 * WORDS), code + (c * CH + i) * WORDS);
        }
        attend_scale_words<D, CH, NEAR, WIDE>(row[c] + uint(P_CODE_BYTES(D, NEAR)), n, part, scale + c * CH);
      }
    }
    const P_TG float* q = query + part * uint(P_QUERY_SUM(D)) + n * 16u;
    #pragma unroll
    for (int i = 0; i < CH; i++) {
      float unit[NC];
      #pragma unroll
      for (int c = 0; c < NC; c++) unit[c] = attend_unit<NEAR>(attend_scale_byte<NEAR, WIDE>(scale + c * CH, uint(i), part));
      #pragma unroll
      for (int half_group = 0; half_group < 2; half_group++) {
        float v[NC * 8];
        #pragma unroll
        for (int c = 0; c < NC; c++) {
          const P_THREAD uint* word = code + (c * CH + i) * WORDS + half_group * (WORDS / 2);
          attend_values<NEAR>(word[0], v + c * 8);
          if (NEAR) attend_values<NEAR>(word[WORDS / 4], v + c * 8 + 4);
          #pragma unroll
          for (int e = 0; e < 8; e++) v[c * 8 + e] = p_mul(v[c * 8 + e], unit[c]);
        }
        #pragma unroll
        for (int h = 0; h < HG; h++) {
          #pragma unroll
          for (int e = 0; e < 8; e += 4) {
            float4 a = *(const P_TG float4*)(q + h * 4 * P_QUERY_SUM(D) + i * 16 + half_group * 8 + e);
            #pragma unroll
            for (int c = 0; c < NC; c++) {
              float s = p_fma(a.x, v[c * 8 + e], sum[c * HG + h]);
              s = p_fma(a.y, v[c * 8 + e + 1], s);
              s = p_fma(a.z, v[c * 8 + e + 2], s);
              sum[c * HG + h] = p_fma(a.w, v[c * 8 + e + 3], s);
            }
          }
        }
      }
    }
  }
}
// Scores of the 8 NC columns from `first` on; an empty column's is -infinity. All lanes of a SIMD group come here.
template <int HG, int D, int NC, int SPAN, bool NEAR, bool WIDE>
P_FN void attend_scores(
    const P_TG float* query, const P_DEV uchar* cache, const P_DEV uchar* fresh, int held, const P_TG int* place, uint first,
    uint end, uint lane, float scale, P_TG float* score) {
  int places[NC];
  float sum[NC * HG];
  uint any = 0u;
  #pragma unroll
  for (int c = 0; c < NC; c++) {
    uint column = first + uint(8 * c) + (lane & 7u);
    places[c] = column < end ? place[column] : -1;
    any = any | (places[c] >= 0 ? 1u : 0u);
  }
  #pragma unroll
  for (int i = 0; i < NC * HG; i++) sum[i] = 0.0f;
  if (p_laneor(any) != 0u) attend_dots<HG, D, NC, NEAR, WIDE>(query, cache, fresh, held, places, lane >> 3, sum);
  #pragma unroll
  for (int c = 0; c < NC; c++) {
    uint column = first + uint(8 * c) + lane;
    #pragma unroll
    for (int h = 0; h < HG; h++) {
      float s = p_add(sum[c * HG + h], simd_shuffle_xor(sum[c * HG + h], ushort(8)));
      s = p_add(s, simd_shuffle_xor(s, ushort(16)));
      if (lane < 8u && column < end) score[uint(h * SPAN) + column] = places[c] >= 0 ? p_mul(s, scale) : p_neg(p_inf());
    }
  }
}
