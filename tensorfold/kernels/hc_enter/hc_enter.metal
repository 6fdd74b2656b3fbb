// What stands before a sublayer, in one launch: the mix of the streams as they are now, and the streams collapsed with
// the weights of the mix before, normed, and quantised for the matrices that follow.
//
// Order: those of hc_mix, hc_collapse_norm and act_quant_fp8_planes, whose headers do the work.
// Threads: grid (2, R) threadgroups of 32 G threads. Of a row's two the first normalises and the second mixes, one SIMD
// group for all. A thread of the first holds V neighbours in each of P passes from the one reading of the streams to
// the end.
#include "act_quant/fp8_block.h"
#include "hc_collapse_norm/hc_collapse.h"
#include "hc_mix/hc_mix.h"
#include "wide.h"

// V neighbours of a row of bfloat16, 8 bytes a load
template <int V>  // neighbours that a thread holds in a pass, a multiple of 4
P_FN void neighbours(const P_DEV bfloat16_t* x, P_THREAD float* v) {
  #pragma unroll
  for (int i = 0; i < V / 4; i++) {
    uint2 q = ((const P_DEV uint2*)x)[i];
    v[4 * i] = p_bflo(q.x);
    v[4 * i + 1] = p_bfhi(q.x);
    v[4 * i + 2] = p_bflo(q.y);
    v[4 * i + 3] = p_bfhi(q.y);
  }
}

template <
    int D,           // elements of a stream
    int N,           // streams of a row
    int C,           // chunks of 512 elements of a row's streams
    int K,           // elements of a row's streams together
    int ITERATIONS,  // turns of the double normalisation
    int G,           // SIMD groups of a threadgroup
    int V,           // neighbours that a thread holds in a pass, a multiple of 4
    int P>           // passes over a row
[[kernel]] void hc_enter(
    const device float* part,         // [R, C, 25]
    const device float* base,         // [24]
    const constant float* scale,      // [3]
    const constant float* norm_eps,   // [1]
    const constant float* hc_eps,     // [1]
    const device bfloat16_t* x,       // [R, N, D]
    const device float* pre,          // [R, N], of the mix before
    const device bfloat16_t* w,       // [D]
    device float* own,                // [R, 4], pre of this mix
    device float* post,               // [R, 4]
    device float* comb,               // [R, 4, 4]
    device bfloat16_t* h,             // [R, D]
    device float* q,                  // [R, 4, D / 16, 4]
    uint3 threadgroup_position_in_grid [[threadgroup_position_in_grid]],
    uint thread_index_in_simdgroup [[thread_index_in_simdgroup]],
    uint simdgroup_index_in_threadgroup [[simdgroup_index_in_threadgroup]],
    uint thread_index_in_threadgroup [[thread_index_in_threadgroup]]) {
  P_SHARED ushort held[D];  // the collapsed row, as bfloat16 holds it
  P_SHARED float sums[8];   // group sums of its squares
  uint lane = thread_index_in_simdgroup, simd = simdgroup_index_in_threadgroup, row = threadgroup_position_in_grid.y;
  // ---- the second threadgroup: the mix of the streams as they are now
  if (threadgroup_position_in_grid.x == 1u) {
    if (simd == 0u) {
      mix_row<C, K, ITERATIONS>(part + ulong(row) * uint(C * 25), base, scale[mix_scale(lane)], norm_eps[0], hc_eps[0],
                                own + row * 4u, post + row * 4u, comb + row * 16u, lane);
    }
    return;
  }
  // ---- the first: the streams collapsed, rounded and kept
  const uint step = uint(32 * G * V);
  uint first = thread_index_in_threadgroup * uint(V);
  ulong at = ulong(row) * uint(N * D), to = ulong(row) * uint(D);
  float weight[N], y[P * V], gain[P * V];
  for (uint i = 0u; i < uint(N); i++) weight[i] = p_load(pre[row * uint(N) + i]);
  #pragma unroll
  for (int pass = 0; pass < P; pass++) {
    uint d = uint(pass) * step + first;
    if (d < uint(D)) {
      float v[N * V];
      #pragma unroll
      for (uint i = 0u; i < uint(N); i++) neighbours<V>(x + at + i * uint(D) + d, v + i * uint(V));
      neighbours<V>(w + d, gain + pass * V);
      #pragma unroll
      for (int k = 0; k < V; k++) {
        float one[N];
        #pragma unroll
        for (int i = 0; i < N; i++) one[i] = v[i * V + k];
        y[pass * V + k] = p_round_bf(collapse<N>(weight, one));
        held[d + uint(k)] = ushort(p_bits(y[pass * V + k]) >> 16);
      }
    }
  }
  // ---- normed, rounded, quantised
  float r = norm_factor<D, G>(held, sums, norm_eps[0], lane, simd);
  #pragma unroll
  for (int pass = 0; pass < P; pass++) {
    uint d = uint(pass) * step + first;
    float n[V];
    #pragma unroll
    for (int k = 0; k < V; k++) {
      n[k] = d < uint(D) ? p_round_bf(p_mul(gain[pass * V + k], p_mul(y[pass * V + k], r))) : 0.0f;
    }
    uint code = fp8_scale<V>(n);
    if (d < uint(D)) {
      #pragma unroll
      for (int k = 0; k < V; k += 4) {
        uint2 words;
        words.x = (p_bits(n[k]) >> 16) | (p_bits(n[k + 1]) & 0xffff0000u);
        words.y = (p_bits(n[k + 2]) >> 16) | (p_bits(n[k + 3]) & 0xffff0000u);
        ((P_DEV uint2*)(h + to + d))[k / 4] = words;
        float4 four;
        four.x = p_out(fp8_value(n[k], code));
        four.y = p_out(fp8_value(n[k + 1], code));
        four.z = p_out(fp8_value(n[k + 2], code));
        four.w = p_out(fp8_value(n[k + 3], code));
        *(P_DEV float4*)(q + to + fp8_plane<D>(d + uint(k))) = four;
      }
    }
  }
}
