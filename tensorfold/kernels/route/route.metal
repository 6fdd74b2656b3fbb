// Picks K of E experts: s = sqrt(softplus(logit)); the K largest s + bias, ties to the lower id, NaN last; ids
// ascending. weight = s / (sum of the picked s + 1e-20) * scale, or s * scale without NORM.
//
// Order: the sum runs over ascending ids, one by one; the choice compares integers.
// Threads: a threadgroup of 32 G threads owns one row: all compute scores, then the first SIMD group picks, K turns of
// the largest key; lane j holds the experts j, j + 32, ...
#include "maths.h"

// Larger is better: a NaN is 1, every other value more; 0 is taken or absent.
P_FN uint route_key(float v) {
  uint u = p_bits(p_add(v, 0.0f));
  uint ordered = (u & 0x80000000u) != 0u ? ~u : u | 0x80000000u;
  return p_isnan(v) ? 1u : ordered;
}

template <
    int E,      // experts
    int K,      // experts a row goes to
    bool NORM,  // weights are divided by their sum
    int G>      // SIMD groups of a threadgroup
[[kernel]] void route(
    const device float* logits,       // [R, E]
    const device float* bias,         // [E]
    const constant float* scale,      // [1]
    device int* ids,                  // [R, K]
    device float* weights,            // [R, K]
    uint3 threadgroup_position_in_grid [[threadgroup_position_in_grid]],
    uint thread_index_in_simdgroup [[thread_index_in_simdgroup]],
    uint simdgroup_index_in_threadgroup [[simdgroup_index_in_threadgroup]],
    uint thread_index_in_threadgroup [[thread_index_in_threadgroup]]) {
  P_SHARED float scores[E];  // every expert's score, without its bias
  uint lane = thread_index_in_simdgroup;
  ulong row = threadgroup_position_in_grid.x;
  // ---- every expert's score
  for (uint e = thread_index_in_threadgroup; e < uint(E); e += 32u * uint(G)) {
    scores[e] = p_sqrt(p_softplus(p_load(logits[row * uint(E) + e])));
  }
  P_BARRIER();
  if (simdgroup_index_in_threadgroup > 0u) return;
  // ---- the K largest keys, one a turn
  uint keys[(E + 31) / 32];
  for (uint i = 0u; i < uint((E + 31) / 32); i++) {
    uint e = i * 32u + lane;
    keys[i] = e < uint(E) ? route_key(p_add(scores[e], p_load(bias[e]))) : 0u;
  }
  uint picked[K];
  for (int turn = 0; turn < K; turn++) {
    uint best = 0u, at = 0u;
    for (uint i = 0u; i < uint((E + 31) / 32); i++) {
      at = keys[i] > best ? i * 32u + lane : at;
      best = p_maxu(best, keys[i]);
    }
    uint top = p_lanemaxu(best);
    // of the lanes that hold it the lowest id: the largest complement
    picked[turn] = ~p_lanemaxu(best == top ? ~at : 0u);
    for (uint i = 0u; i < uint((E + 31) / 32); i++) {
      keys[i] = i * 32u + lane == picked[turn] ? 0u : keys[i];
    }
  }
  // ---- weights, by ascending id: lane j takes the picked id that has j smaller ones
  uint mine = 0u;
  for (int i = 0; i < K; i++) {
    uint below = 0u;
    for (int j = 0; j < K; j++) below += uint(picked[j] < picked[i]);
    mine = below == lane ? picked[i] : mine;
  }
  float score = scores[mine];
  float total = simd_shuffle(score, ushort(0));
  for (int j = 1; j < K; j++) total = p_add(total, simd_shuffle(score, ushort(j)));
  float weight = NORM ? p_flush(p_div(score, p_add(total, 1.0e-20f))) : score;
  if (lane < uint(K)) {
    ids[row * uint(K) + lane] = int(mine);
    p_store(weights + row * uint(K) + lane, p_mul(weight, scale[0]));
  }
}
