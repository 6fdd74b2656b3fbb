// Rows of the caches and index queries: normed (NORM), turned, packed. FORM 0: window rows (e4m3, a power of two to 32
// elements), 1: compressed rows (e2m1, an e4m3 scale to 16), 2: index keys (e2m1, a power of two to 32). Every step rounds as
// its own kernel does: the bits of rms_norm, rope and the format's pack, whose orders these are.
// A threadgroup of 32 G threads a head of a row; a thread holds V neighbours at a time.
#include "act_quant/fp4_e4m3_block.h"
#include "act_quant/fp4_e8m0_block.h"
#include "act_quant/fp8_block.h"
#include "turned.h"

template <int H, int D, int RD, int G, int V, int FORM, bool NORM>
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
  P_SHARED float part[8];
  ulong row = threadgroup_position_in_grid.y, line = row * uint(H) + threadgroup_position_in_grid.x;
  float factor = 1.0f;
  if (NORM) {
    rms_sums<D, G>(x + line * uint(D), simdgroup_index_in_threadgroup, thread_index_in_simdgroup, part);
    P_BARRIER();
    factor = rms_factor<D>(part, eps[0]);
  }
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
