// The best token of each part of 1024 tokens: the largest logit, or at a temperature t the largest logit - t log E.
//
// Order: -0 becomes +0; score = logit - t noise, product and difference rounded and flushed apart; the choice compares
// integers, NaN last, ties to the lower id.
// Threads: a threadgroup of 32 G threads owns a part of a row; a thread takes the four tokens of one random block at a
// time. Grid (parts, R rows).
#include "keyed.h"

// Larger is better: a NaN is 1, every other value more; 0 is absent.
P_FN uint pick_key(float v) {
  uint u = p_bits(v);
  return p_isnan(v) ? 1u : (u & 0x80000000u) != 0u ? ~u : u | 0x80000000u;
}
template <
    int V,  // tokens of the vocabulary
    int G>  // SIMD groups of a threadgroup
[[kernel]] void pick_parts(
    const device float* logits,       // [R, V]
    const device float* temperature,  // [R], 0 is greedy
    const device uint* seed,          // [R, 2], low word first
    const device int* position,       // [R], of the token being drawn
    device uint* parts,               // [R, ceil(V / 1024), 3]: best score's key, its token, 1 if a logit is not finite
    uint3 threadgroup_position_in_grid [[threadgroup_position_in_grid]],
    uint thread_index_in_simdgroup [[thread_index_in_simdgroup]],
    uint simdgroup_index_in_threadgroup [[simdgroup_index_in_threadgroup]],
    uint thread_index_in_threadgroup [[thread_index_in_threadgroup]]) {
  P_SHARED uint keys[G];    // each SIMD group's best key
  P_SHARED uint tokens[G];  // its token
  P_SHARED uint flaws[G];   // whether it met a logit that is not finite
  const uint COUNT = uint((V + 1023) / 1024);
  uint part = threadgroup_position_in_grid.x, row = threadgroup_position_in_grid.y, lane = thread_index_in_simdgroup;
  float t = p_load(temperature[row]);
  uint best = 0u, at = 0u, flaw = 0u;
  // ---- this thread's best: blocks of four tokens, which share one random block
  for (uint b = thread_index_in_threadgroup; b < 256u; b += 32u * uint(G)) {
    uint block = part * 256u + b;
    float noise[4];
    for (int i = 0; i < 4; i++) noise[i] = 0.0f;
    if (t != 0.0f && block * 4u < uint(V)) {
      uint4 counter;
      counter.x = block;
      counter.y = 0u;
      counter.z = uint(position[row]);
      counter.w = 0u;
      uint2 key;
      key.x = seed[2u * row];
      key.y = seed[2u * row + 1u];
      uint4 words = p_philox(counter, key);
      noise[0] = keyed_noise(words.x);
      noise[1] = keyed_noise(words.y);
      noise[2] = keyed_noise(words.z);
      noise[3] = keyed_noise(words.w);
    }
    for (uint i = 0u; i < 4u; i++) {
      uint token = block * 4u + i;
      if (token < uint(V)) {
        float x = p_add(p_load(logits[ulong(row) * uint(V) + token]), 0.0f);
        flaw = flaw | (p_abs(x) < p_inf() ? 0u : 1u);
        uint key = pick_key(t != 0.0f ? p_flush(p_sub(x, p_mulz(t, noise[i]))) : x);
        at = key > best ? token : at;
        best = p_maxu(best, key);
      }
    }
  }
  // ---- the SIMD group's best, then the threadgroup's
  uint top = p_lanemaxu(best);
  at = ~p_lanemaxu(best == top ? ~at : 0u);
  flaw = p_laneor(flaw);
  if (lane == 0u) {
    keys[simdgroup_index_in_threadgroup] = top;
    tokens[simdgroup_index_in_threadgroup] = at;
    flaws[simdgroup_index_in_threadgroup] = flaw;
  }
  P_BARRIER();
  if (thread_index_in_threadgroup > 0u) return;
  for (uint g = 1u; g < uint(G); g++) {
    bool better = keys[g] > top || (keys[g] == top && tokens[g] < at);
    top = better ? keys[g] : top;
    at = better ? tokens[g] : at;
    flaw = flaw | flaws[g];
  }
  ulong out = (ulong(row) * COUNT + part) * 3u;
  parts[out] = top;
  parts[out + 1u] = at;
  parts[out + 2u] = flaw;
}
