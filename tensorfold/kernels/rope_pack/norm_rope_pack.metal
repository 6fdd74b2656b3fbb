// Rows of the caches and index queries: normed (NORM), turned, packed. FORM 0: window rows (e4m3, a power of two to 32
// elements), 1: compressed rows (e2m1, an e4m3 scale to 16), 2: index keys (e2m1, a power of two to 32).
//
// Order: those of rms_norm, rope and the format's pack, whose bits these are: every step rounds as its own kernel does.
// Threads: a threadgroup of 32 G threads owns a head of a row; a thread holds V neighbours at a time. Grid (H, R).
#include "act_quant/fp4_e4m3_block.h"
#include "act_quant/fp4_e8m0_block.h"
#include "act_quant/fp8_block.h"
#include "turned.h"

template <
    int H,      // heads of a row: rows that share angles
    int D,      // elements of a head
    int RD,     // of which the last are turned
    int G,      // SIMD groups of a threadgroup
    int V,      // neighbours that a thread holds at a time, an even number
    int FORM,   // 0: window rows, 1: compressed rows, 2: index keys
    bool NORM>  // normed first
[[kernel]] void norm_rope_pack(
    const device bfloat16_t* x,        // [R, H, D]
    const device bfloat16_t* w,        // [D]
    const device float* table,         // [R, RD / 2, 2]: cos, sin
    const constant float* eps,         // [1]
    device uchar* packed,              // [R, H, D + D / 32], [R, H, D / 2 + D / 16] or [R, H, D / 2 + D / 32]
    uint3 threadgroup_position_in_grid [[threadgroup_position_in_grid]],
    uint thread_index_in_simdgroup [[thread_index_in_simdgroup]],
    uint simdgroup_index_in_threadgroup [[simdgroup_index_in_threadgroup]],
    uint thread_index_in_threadgroup [[thread_index_in_threadgroup]]) {
  constexpr uint WIDTH = FORM == 0 ? uint(D + D / 32) : FORM == 1 ? uint(D / 2 + D / 16) : uint(D / 2 + D / 32);
  P_SHARED float part[8];  // group sums of squares
  ulong row = threadgroup_position_in_grid.y, line = row * uint(H) + threadgroup_position_in_grid.x;
  // ---- the norm's factor
  float factor = 1.0f;
  if (NORM) {
    rms_sums<D, G>(x + line * uint(D), simdgroup_index_in_threadgroup, thread_index_in_simdgroup, part);
    P_BARRIER();
    factor = rms_factor<D>(part, eps[0]);
  }
  // ---- normed, turned, packed
  P_DEV uchar* y = packed + line * WIDTH;
  uint first = thread_index_in_threadgroup * uint(V);
  for (uint at = first; at < first + uint(D); at += uint(32 * G * V)) {
    float v[V];
    normed_and_turned<D, RD, V, NORM>(x + line * uint(D), w, factor, table + row * uint(RD), at, v);
    uint scale = FORM == 0 ? fp8_scale<V>(v) : FORM == 1 ? fp4_e4m3_scale<V>(v) : fp4_e8m0_scale<V>(v);
    if (at >= uint(D)) continue;
    if (FORM == 0) fp8_pack<D, V>(y, at, v, scale);
    if (FORM == 1) fp4_e4m3_pack<D, V>(y, at, v, scale);
    if (FORM == 2) fp4_e8m0_pack<D, V>(y, at, v, scale);
  }
}
