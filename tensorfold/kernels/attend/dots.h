// Scores of attention: eight lanes with a column each, four such groups of lanes for the four running sums. Knows no
// softmax.
#pragma once
#include "turn.h"
#include "rows.h"

// Rows of `query` in threadgroup memory, in floats: sum by sum, four floats between, so that the four sums lie in other
// banks.
#define P_QUERY_SUM(D) ((D) / 4 + 4)

// Eight neighbours of heads' queries into `query`, turned by `angles` (those of the last RD elements of a head) and
// rounded; `i` counts eights over the heads.
template <
    int D,   // elements of a head
    int RD>  // of which the last are turned
P_FN void attend_query(const P_DEV bfloat16_t* q, const P_DEV float* angles, uint i, P_TG float* query) {
  constexpr uint STILL = uint(D - RD);  // elements of a head that are not turned
  uint d = i % uint(D / 8) * 8u;
  uint4 words = ((const P_DEV uint4*)q)[i];
  P_TG float* to = query + i / uint(D / 8) * uint(4 * P_QUERY_SUM(D)) +
                   d / 16u % 4u * uint(P_QUERY_SUM(D)) + d / 64u * 16u + d % 16u;
  #pragma unroll
  for (uint k = 0u; k < 4u; k++) {
    float v[2];
    v[0] = p_bflo(p_word(words, k));
    v[1] = p_bfhi(p_word(words, k));
    if (d + 2u * k >= STILL) rope_turn<false>(v, angles[d + 2u * k - STILL], angles[d + 2u * k + 1u - STILL]);
    to[2u * k] = p_round_bf(v[0]);
    to[2u * k + 1u] = p_round_bf(v[1]);
  }
}
// Codes and scale bytes of AT groups of 16 elements, four groups apart, in NC columns' rows, zeros where a column is
// empty.
template <
    int D,      // elements of a head
    int NC,     // compressed columns a lane scores, 8 apart
    int AT,     // groups of 16 elements on their way at once
    bool NEAR,  // window rows, else compressed ones
    bool WIDE>  // rows begin at multiples of 16 bytes
P_FN void attend_groups(
    const P_DEV uchar* const P_THREAD* row, const P_THREAD int* places, uint group, P_THREAD uint* code,
    P_THREAD uint* scale) {
  constexpr int WORDS = NEAR ? 4 : 2;
  #pragma unroll
  for (int i = 0; i < AT * NC; i++) {
    uint at = group + uint(4 * (i / NC));
    #pragma unroll
    for (int k = 0; k < WORDS; k++) code[i * WORDS + k] = 0u;
    scale[i] = 0u;
    if (places[i % NC] >= 0) {
      attend_words<WORDS, WIDE>(row[i % NC] + at * uint(4 * WORDS), code + i * WORDS);
      scale[i] = row[i % NC][uint(P_CODE_BYTES(D, NEAR)) + at / (NEAR ? 2u : 1u)];
    }
  }
}
// sum[c * HG + h] += a group's products with HG queries, from q on.
template <
    int HG,     // heads of a threadgroup, which share decoded columns
    int D,      // elements of a head
    int NC,     // compressed columns a lane scores, 8 apart
    bool NEAR>  // window rows, else compressed ones
P_FN void attend_products(
    const P_TG float* q, const P_THREAD uint* code, const P_THREAD uint* scale, P_THREAD float* sum) {
  constexpr int WORDS = NEAR ? 4 : 2;
  float unit[NC];
  #pragma unroll
  for (int c = 0; c < NC; c++) unit[c] = attend_unit<NEAR>(scale[c]);
  #pragma unroll
  for (int half_group = 0; half_group < 2; half_group++) {
    float v[NC * 8];
    #pragma unroll
    for (int c = 0; c < NC; c++) {
      const P_THREAD uint* word = code + c * WORDS + half_group * (WORDS / 2);
      attend_decoded<NEAR>(word[0], v + c * 8);
      if (NEAR) attend_decoded<NEAR>(word[WORDS / 4], v + c * 8 + 4);
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
}
// What a threadgroup of T threads does with one kind of columns: queries into `query`, then the scores of NC columns a
// lane, 8 apart. scores[h * stride] is head h's of lane 0's first column, and `left` columns from there on exist. An
// empty column's is -infinity. AT groups of a row are on their way while the AT before are added.
template <
    int HG,     // heads of a threadgroup, which share decoded columns
    int D,      // elements of a head
    int RD,     // of which the last are turned
    int T,      // threads of a threadgroup
    int NC,     // compressed columns a lane scores, 8 apart
    int AT,     // groups of 16 elements on their way at once
    bool NEAR,  // window rows, else compressed ones
    bool WIDE>  // rows begin at multiples of 16 bytes
P_FN void attend_task(
    const P_DEV bfloat16_t* q, const P_DEV float* angles, P_TG float* query, const P_DEV uchar* cache,
    const P_DEV uchar* fresh, int held, const P_THREAD int* places, uint me, uint lane, float scale,
    P_DEV float* scores, uint stride, int left) {
  constexpr int WORDS = NC * AT * (NEAR ? 4 : 2), EIGHTS = HG * D / 8;
  const P_DEV uchar* row[NC];
  uint code[WORDS], unit[NC * AT], later[WORDS], later_unit[NC * AT], part = lane >> 3, any = 0u;
  #pragma unroll
  for (int c = 0; c < NC; c++) {
    any = any | (places[c] >= 0 ? 1u : 0u);
    row[c] = attend_row(cache, fresh, held, places[c] < 0 ? 0 : places[c], uint(P_ROW_BYTES(D, NEAR)));
  }
  // ---- the first groups of the rows on their way, and the queries turned meanwhile
  attend_groups<D, NC, AT, NEAR, WIDE>(row, places, part, code, unit);
  #pragma unroll
  for (int i = 0; i < (EIGHTS + T - 1) / T; i++) {
    if (uint(i * T) + me < uint(EIGHTS)) attend_query<D, RD>(q, angles, uint(i * T) + me, query);
  }
  P_BARRIER();
  // ---- this group of lanes' running sum: every fourth group of 16 elements
  float sum[NC * HG];
  #pragma unroll
  for (int i = 0; i < NC * HG; i++) sum[i] = 0.0f;
  const P_TG float* from = query + part * uint(P_QUERY_SUM(D));
  #pragma unroll 1
  for (uint group = p_laneor(any) != 0u ? part : uint(D / 16); group < uint(D / 16); group += uint(4 * AT)) {
    if (group + uint(4 * AT) < uint(D / 16)) {
      attend_groups<D, NC, AT, NEAR, WIDE>(row, places, group + uint(4 * AT), later, later_unit);
    }
    #pragma unroll
    for (int a = 0; a < AT; a++) {
      attend_products<HG, D, NC, NEAR>(from + 16 * a, code + a * (WORDS / AT), unit + a * NC, sum);
    }
    from = from + 16 * AT;
    #pragma unroll
    for (int i = 0; i < WORDS; i++) code[i] = later[i];
    #pragma unroll
    for (int i = 0; i < NC * AT; i++) unit[i] = later_unit[i];
  }
  // ---- the four sums added, scaled, written
  #pragma unroll
  for (int c = 0; c < NC; c++) {
    uint column = uint(8 * c) + lane;
    #pragma unroll
    for (int h = 0; h < HG; h++) {
      float s = p_add(sum[c * HG + h], simd_shuffle_xor(sum[c * HG + h], ushort(8)));
      s = p_add(s, simd_shuffle_xor(s, ushort(16)));
      s = p_mul(s, scale);
      s = p_abs(s) < 5.42101086e-20f ? 0.0f : s;
      if (lane < 8u && int(column) < left)
        p_store(scores + uint(h) * stride + column, places[c] >= 0 ? s : p_neg(p_inf()));
    }
  }
}
