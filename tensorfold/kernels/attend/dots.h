// Scores of attention: eight lanes with a column each, four such groups of lanes for the four running sums. Knows no softmax.
#pragma once
#include "rows.h"

// Rows of `query` in threadgroup memory, in floats: sum by sum, four floats between, so that the four sums lie in other banks.
#define P_QUERY_SUM(D) ((D) / 4 + 4)

// Codes and scale byte of a group of 16 elements in NC columns' rows, zeros where a column is empty.
template <int D, int NC, bool NEAR, bool WIDE>
P_FN void attend_group(
    const P_DEV uchar* const P_THREAD* row, const P_THREAD int* places, uint group, P_THREAD uint* code, P_THREAD uint* scale) {
  constexpr int WORDS = NEAR ? 4 : 2;
  #pragma unroll
  for (int c = 0; c < NC; c++) {
    #pragma unroll
    for (int i = 0; i < WORDS; i++) code[c * WORDS + i] = 0u;
    scale[c] = 0u;
    if (places[c] >= 0) {
      attend_words<WORDS, WIDE>(row[c] + group * uint(4 * WORDS), code + c * WORDS);
      scale[c] = row[c][uint(P_CODE_BYTES(D, NEAR)) + group / (NEAR ? 2u : 1u)];
    }
  }
}
// sum[c * HG + h] of running sum `part`, for HG heads and the NC columns places[0], places[8], ...; a group is on its way while
// the one before is added.
template <int HG, int D, int NC, bool NEAR, bool WIDE>
P_FN void attend_dots(
    const P_TG float* query, const P_DEV uchar* cache, const P_DEV uchar* fresh, int held, const P_THREAD int* places, uint part,
    P_THREAD float* sum) {
  constexpr int WORDS = NEAR ? 4 : 2;
  const P_DEV uchar* row[NC];
  uint code[NC * WORDS], scale[NC], later[NC * WORDS], later_scale[NC];
  #pragma unroll
  for (int c = 0; c < NC; c++) row[c] = attend_row(cache, fresh, held, places[c] < 0 ? 0 : places[c], uint(P_ROW_BYTES(D, NEAR)));
  const P_TG float* q = query + part * uint(P_QUERY_SUM(D));
  attend_group<D, NC, NEAR, WIDE>(row, places, part, code, scale);
  #pragma unroll 1
  for (uint group = part; group < uint(D / 16); group += 4u) {
    if (group + 4u < uint(D / 16)) attend_group<D, NC, NEAR, WIDE>(row, places, group + 4u, later, later_scale);
    float unit[NC];
    #pragma unroll
    for (int c = 0; c < NC; c++) unit[c] = attend_unit<NEAR>(scale[c]);
    #pragma unroll
    for (int half_group = 0; half_group < 2; half_group++) {
      float v[NC * 8];
      #pragma unroll
      for (int c = 0; c < NC; c++) {
        const P_THREAD uint* word = code + c * WORDS + half_group * (WORDS / 2);
        attend_values<NEAR>(word[0], v + c * 8);
        if (NEAR) attend_values<NEAR>(word[WORDS / 4], v + c * 8 + 4);
        #pragma unroll
        for (int e = 0; e < 8; e++) v[c * 8 + e] = p_mul(v[c * 8 + e], unit[c]);
      }
      #pragma unroll
      for (int h = 0; h < HG; h++) {
        #pragma unroll
        for (int e = 0; e < 8; e += 4) {
          float4 a = *(const P_TG float4*)(q + h * 4 * P_QUERY_SUM(D) + half_group * 8 + e);
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
    q = q + 16;
    #pragma unroll
    for (int i = 0; i < NC * WORDS; i++) code[i] = later[i];
    #pragma unroll
    for (int c = 0; c < NC; c++) scale[c] = later_scale[c];
  }
}
// Scores of NC columns a lane, 8 apart, the first SIMD group's lane's at `scores`; `end` of them from there on exist. An empty
// column's is -infinity. scores[h * stride + column]. All lanes of a SIMD group come here.
template <int HG, int D, int NC, bool NEAR, bool WIDE>
P_FN void attend_task(
    const P_TG float* query, const P_DEV uchar* cache, const P_DEV uchar* fresh, int held, const P_THREAD int* places, uint lane,
    float scale, P_DEV float* scores, uint stride, uint end) {
  float sum[NC * HG];
  uint any = 0u;
  #pragma unroll
  for (int c = 0; c < NC; c++) any = any | (places[c] >= 0 ? 1u : 0u);
  #pragma unroll
  for (int i = 0; i < NC * HG; i++) sum[i] = 0.0f;
  if (p_laneor(any) != 0u) attend_dots<HG, D, NC, NEAR, WIDE>(query, cache, fresh, held, places, lane >> 3, sum);
  #pragma unroll
  for (int c = 0; c < NC; c++) {
    uint column = uint(8 * c) + lane;
    #pragma unroll
    for (int h = 0; h < HG; h++) {
      float s = p_add(sum[c * HG + h], simd_shuffle_xor(sum[c * HG + h], ushort(8)));
      s = p_add(s, simd_shuffle_xor(s, ushort(16)));
      s = p_mul(s, scale);
      s = p_abs(s) < 5.42101086e-20f ? 0.0f : s;
      if (lane < 8u && column < end) p_store(scores + uint(h) * stride + column, places[c] >= 0 ? s : p_neg(p_inf()));
    }
  }
}
