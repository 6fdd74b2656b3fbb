// Attention with a sink over packed rows by place; keys and values are the same row. Columns: W window places, then K places
// of compressed rows, in blocks of 64; an empty place (-1) is skipped and changes no bit.
// Order, of each row and head: a score is four running sums of fma (sum i takes the groups of 16 elements i, i + 4, ...),
// (0 + 1) + (2 + 3), times `scale`. Block by block: top = max(top, scores), top begins at -1e30; p = exp(score - top);
// shrink = exp(old top - top); total = fma(total, shrink, sum of p), that sum over lanes: columns j and j + 32 first, then
// distances 16, 8, 4, 2, 1. An output is out * shrink, then fma(P, value) over the block's columns in order, P = bf16(p), 0
// below 2^-64. At the end out / (total + exp(sink - top)), one rounding to bfloat16.
// A threadgroup of 32 G threads owns HG heads of one row. Scores: four threads a column. Outputs: a thread owns four
// neighbouring elements of every PARTS-th head. WIDE: window rows begin at multiples of 4 bytes.
#include "maths.h"
#include "rows.h"

#define ROW_AT(place, near) \
  ((near) ? attend_row(window, window_new, held, place, uint(D + D / 32)) \
          : attend_row(packed, packed_new, packed_held, place, uint(D / 2 + D / 16)))

template <int H, int D, int HG, int G, bool WIDE>
[[kernel]] void attend(
    const device bfloat16_t* q,       // [R, H, D]
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
  constexpr int T = 32 * G, QUADS = D / 4, PARTS = T / QUADS < HG ? T / QUADS : HG, OWN = (HG + PARTS - 1) / PARTS;
  P_SHARED float query[HG * D];
  P_SHARED float score[2 * HG * 64];
  P_SHARED float shrink[2 * HG];
  P_SHARED float divisor[HG];
  uint lane = thread_index_in_simdgroup, group = simdgroup_index_in_threadgroup, me = thread_index_in_threadgroup;
  ulong row = threadgroup_position_in_grid.y;
  uint head = threadgroup_position_in_grid.x * uint(HG);
  int held = sizes[0], w = sizes[1], packed_held = sizes[2], k = sizes[3];
  ulong start = (row * uint(H) + head) * uint(D);
  for (uint i = me; i < uint(HG * D); i += uint(T)) query[i] = p_load(q[start + i]);
  uint quad = me % uint(QUADS), part = me / uint(QUADS);
  float acc[OWN][4];
  for (int o = 0; o < OWN; o++) {
    for (uint i = 0u; i < 4u; i++) acc[o][i] = 0.0f;
  }
  // of the heads group, group + G, ... this SIMD group keeps the running maximum and the sum
  float top[(HG + G - 1) / G], total[(HG + G - 1) / G];
  for (int o = 0; o < (HG + G - 1) / G; o++) {
    top[o] = -1.0e30f;
    total[o] = 0.0f;
  }
  P_BARRIER();
  uint turn = 0u;
  for (int block = 0; block < w + k; block += 64) {
    // lane j of every SIMD group holds the places of columns j and j + 32; all skip a block of empty columns alike
    int places[2];
    for (int i = 0; i < 2; i++) {
      int column = block + int(lane) + 32 * i;
      places[i] = -1;
      if (column < w) {
        places[i] = window_places[row * uint(w) + uint(column)];
      } else if (column < w + k) {
        places[i] = packed_places[row * uint(k) + uint(column - w)];
      }
    }
    if (p_laneor((places[0] >= 0 ? 1u : 0u) | (places[1] >= 0 ? 1u : 0u)) == 0u) continue;
    uint at = turn * uint(HG);
    for (uint j = me / 4u; j < 64u; j += uint(T / 4)) {
      int place = simd_shuffle(j < 32u ? places[0] : places[1], ushort(j & 31u));
      bool near = block + int(j) < w;
      float sum[HG];
      for (int h = 0; h < HG; h++) sum[h] = 0.0f;
      if (place >= 0) {
        const P_DEV uchar* key = ROW_AT(place, near);
        for (uint d = (me & 3u) * 16u; d < uint(D); d += 64u) {
          float unit = attend_scale(key, d, uint(D), near);
          float v[16];
          for (uint i = 0u; i < 16u; i += 4u) attend_quad<WIDE>(key, d + i, near, unit, v + i);
          for (uint h = 0u; h < uint(HG); h++) {
            #pragma unroll
            for (uint i = 0u; i < 16u; i++) sum[h] = p_fma(query[h * uint(D) + d + i], v[i], sum[h]);
          }
        }
      }
      for (uint h = 0u; h < uint(HG); h++) {
        float s = p_add(sum[h], simd_shuffle_xor(sum[h], ushort(1)));
        s = p_add(s, simd_shuffle_xor(s, ushort(2)));
        if ((me & 3u) == 0u) score[(at + h) * 64u + j] = p_mul(s, scale[0]);
      }
    }
    P_BARRIER();
    for (int o = 0; o < (HG + G - 1) / G; o++) {
      uint h = group + uint(o * G);
      if (h < uint(HG)) {
        bool a = places[0] >= 0, b = places[1] >= 0;
        float low = a ? score[(at + h) * 64u + lane] : p_neg(p_inf());
        float high = b ? score[(at + h) * 64u + 32u + lane] : p_neg(p_inf());
        float peak = p_max(top[o], p_lanemax(p_max(low, high)));
        low = a ? p_exp(p_sub(low, peak)) : 0.0f;
        high = b ? p_exp(p_sub(high, peak)) : 0.0f;
        float less = p_exp(p_sub(top[o], peak));
        total[o] = p_fma(total[o], less, p_lanesum(p_add(low, high)));
        top[o] = peak;
        score[(at + h) * 64u + lane] = low < 5.42101086e-20f ? 0.0f : p_round_bf(low);
        score[(at + h) * 64u + 32u + lane] = high < 5.42101086e-20f ? 0.0f : p_round_bf(high);
        if (lane == 0u) shrink[at + h] = less;
      }
    }
    P_BARRIER();
    for (int o = 0; o < OWN; o++) {
      uint h = part + uint(o * PARTS);
      float less = h < uint(HG) && part < uint(PARTS) ? shrink[at + h] : 0.0f;
      for (uint i = 0u; i < 4u; i++) acc[o][i] = p_mulz(acc[o][i], less);
    }
    int last = w + k - block < 64 ? w + k - block : 64;
    for (int j = 0; j < last; j++) {
      int place = simd_shuffle(j < 32 ? places[0] : places[1], ushort(j & 31));
      bool near = block + j < w;
      if (place >= 0 && part < uint(PARTS)) {
        const P_DEV uchar* value = ROW_AT(place, near);
        float v[4];
        attend_quad<WIDE>(value, quad * 4u, near, attend_scale(value, quad * 4u, uint(D), near), v);
        for (int o = 0; o < OWN; o++) {
          uint h = part + uint(o * PARTS);
          if (h < uint(HG)) {
            float p = score[(at + h) * 64u + uint(j)];
            #pragma unroll
            for (uint i = 0u; i < 4u; i++) acc[o][i] = p_fma(p, v[i], acc[o][i]);
          }
        }
      }
    }
    // the next block writes the other half of `score`, so two barriers a block are enough
    turn = 1u - turn;
  }
  for (int o = 0; o < (HG + G - 1) / G; o++) {
    uint h = group + uint(o * G);
    if (h < uint(HG) && lane == 0u) divisor[h] = p_add(total[o], p_exp(p_sub(p_load(sink[head + h]), top[o])));
  }
  P_BARRIER();
  for (int o = 0; o < OWN; o++) {
    uint h = part + uint(o * PARTS);
    if (h < uint(HG) && part < uint(PARTS)) {
      for (uint i = 0u; i < 4u; i++) p_store(out + start + h * uint(D) + quad * 4u + i, p_div(acc[o][i], divisor[h]));
    }
  }
}
