// The two halves of attention's first product: low, normed and quantised to FP8 planes; kv, normed, turned and packed
// as a window row.
//
// Order: those of rms_norm, rope, act_quant_fp8_planes and act_quant_fp8_pack, whose bits these are: every step rounds
// as its own kernel does.
// Threads: two threadgroups of 32 G threads a row, one a half; a thread holds V neighbours at a time. Grid (2, R).
#include "act_quant/fp8_block.h"
#include "rope_pack/turned.h"

template <
    int K,   // elements of low
    int D,   // elements of kv
    int RD,  // of which the last are turned
    int G,   // SIMD groups of a threadgroup
    int V>   // neighbours that a thread holds at a time, an even number
[[kernel]] void attn_norms(
    const device bfloat16_t* low,      // [R, K]
    const device bfloat16_t* q_norm,   // [K]
    const device bfloat16_t* kv,       // [R, D]
    const device bfloat16_t* kv_norm,  // [D]
    const device float* table,         // [R, RD / 2, 2]: cos, sin
    const constant float* eps,         // [1]
    device float* q,                   // [R, 4, K / 16, 4]
    device uchar* packed,              // [R, D + D / 32]
    uint3 threadgroup_position_in_grid [[threadgroup_position_in_grid]],
    uint thread_index_in_simdgroup [[thread_index_in_simdgroup]],
    uint simdgroup_index_in_threadgroup [[simdgroup_index_in_threadgroup]],
    uint thread_index_in_threadgroup [[thread_index_in_threadgroup]]) {
  P_SHARED float part[8];  // group sums of squares
  uint lane = thread_index_in_simdgroup, group = simdgroup_index_in_threadgroup;
  ulong row = threadgroup_position_in_grid.y;
  // ---- the norm's sums of this half
  bool queries = threadgroup_position_in_grid.x == 0u;
  if (queries) {
    rms_sums<K, G>(low + row * uint(K), group, lane, part);
  } else {
    rms_sums<D, G>(kv + row * uint(D), group, lane, part);
  }
  P_BARRIER();
  // ---- normed, turned, quantised
  float v[V];
  uint first = thread_index_in_threadgroup * uint(V), step = uint(32 * G * V);
  if (queries) {
    float factor = rms_factor<K>(part, eps[0]);
    for (uint at = first; at < first + uint(K); at += step) {
      normed_and_turned<K, 0, V, true>(low + row * uint(K), q_norm, factor, table, at, v);
      uint scale = fp8_scale<V>(v);
      for (uint i = 0u; i < uint(V) && at < uint(K); i++) {
        p_store(q + row * uint(K) + fp8_plane<K>(at + i), fp8_value(v[i], scale));
      }
    }
  } else {
    float factor = rms_factor<D>(part, eps[0]);
    for (uint at = first; at < first + uint(D); at += step) {
      normed_and_turned<D, RD, V, true>(kv + row * uint(D), kv_norm, factor, table + row * uint(RD), at, v);
      uint scale = fp8_scale<V>(v);
      if (at < uint(D)) fp8_pack<D, V>(packed + row * uint(D + D / 32), at, v, scale);
    }
  }
}
