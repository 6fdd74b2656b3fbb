// Engram's gated addition to every stream: y = bf16(x + g * value), g = sigmoid(copysign(sqrt(max(|d|, 1e-6)), d)), d =
// sum(x * (qw * kw) * key) / rms(x) / rms(key) / sqrt(D), rms(v) = sqrt(mean(v^2) + eps).
//
// Order, from D alone, all in float32: 256 running sums, sum i takes elements i, i + 256, ...; the terms of d are (x *
// (qw * kw)) * key, every product rounded, added; squares go in by fma. Groups of 32 sums are added at distances 16, 8,
// 4, 2, 1; the 8 groups as a tree, neighbours first. d = ((sum * (1 / rms(x))) * (1 / rms(key))) * (1 / sqrt(D)). A
// term of d below 2^-100 counts as zero, so that no sum can be subnormal and the sign of d, taken from the sum, is the
// same on every device. One rounding to bfloat16.
// Threads: a threadgroup of 32 G threads owns one stream of one row; each of its G SIMD groups keeps 8 / G groups of
// sums. Grid (R N).
#include "maths.h"

P_FN float engram_term(float x, float q, float k, float key) {
  float v = p_mul(p_mulz(x, p_mulz(q, k)), key);
  return (p_bits(v) & 0x7fffffffu) < 0x0d800000u ? 0.0f : v;
}

template <
    int N,  // streams of a row
    int D,  // elements of a stream
    int G>  // SIMD groups of a threadgroup
[[kernel]] void engram_inject(
    const device bfloat16_t* x,       // [R, N, D]
    const device bfloat16_t* kv,      // [R, (N + 1) D]: a key for each stream, then the value
    const device bfloat16_t* q,       // [N, D]
    const device bfloat16_t* k,       // [N, D]
    const constant float* eps,        // [1]
    const constant float* root,       // [1]: 1 / sqrt(D)
    device bfloat16_t* y,             // [R, N, D]
    uint3 threadgroup_position_in_grid [[threadgroup_position_in_grid]],
    uint thread_index_in_simdgroup [[thread_index_in_simdgroup]],
    uint simdgroup_index_in_threadgroup [[simdgroup_index_in_threadgroup]],
    uint thread_index_in_threadgroup [[thread_index_in_threadgroup]]) {
  P_SHARED float dots[8];         // group sums of the dot product's terms
  P_SHARED float squares_x[8];    // of the squares of x
  P_SHARED float squares_key[8];  // and of the key
  uint stream = threadgroup_position_in_grid.x % uint(N);
  ulong row = threadgroup_position_in_grid.x / uint(N);
  ulong from = (row * uint(N) + stream) * uint(D), key = (row * uint(N + 1) + stream) * uint(D);
  ulong value = (row * uint(N + 1) + uint(N)) * uint(D);
  uint weight = stream * uint(D);
  // ---- the running sums of the dot and of both squares
  for (uint g = simdgroup_index_in_threadgroup; g < 8u; g += uint(G)) {
    float d = 0.0f, xx = 0.0f, kk = 0.0f;
    for (uint i = g * 32u + thread_index_in_simdgroup; i < uint(D); i += 256u) {
      float a = p_load(x[from + i]), b = p_load(kv[key + i]);
      d = p_add(d, engram_term(a, p_load(q[weight + i]), p_load(k[weight + i]), b));
      xx = p_fma(a, a, xx);
      kk = p_fma(b, b, kk);
    }
    d = p_lanesum(d);
    xx = p_lanesum(xx);
    kk = p_lanesum(kk);
    if (thread_index_in_simdgroup == 0u) {
      dots[g] = d;
      squares_x[g] = xx;
      squares_key[g] = kk;
    }
  }
  P_BARRIER();
  // ---- the gate
  float rx = p_div(1.0f, p_sqrt(p_add(p_div(p_treesum<8>(squares_x), float(D)), eps[0])));
  float rk = p_div(1.0f, p_sqrt(p_add(p_div(p_treesum<8>(squares_key), float(D)), eps[0])));
  float dot = p_treesum<8>(dots);
  float d = p_mul(p_mul(p_mul(dot, rx), rk), root[0]);
  float gate = p_sigmoid(p_copysign(p_sqrt(p_max(p_abs(d), 0.000001f)), dot));
  // ---- x plus the gated value
  for (uint i = thread_index_in_threadgroup; i < uint(D); i += 32u * uint(G)) {
    p_store(y + from + i, p_add(p_load(x[from + i]), p_mulz(gate, p_load(kv[value + i]))));
  }
}
