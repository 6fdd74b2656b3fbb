// One element of K experts' outputs and the shared one's, in the order moe_join.metal states. Knows no layout of rows.
#pragma once
#include "portable.h"

// experts lie `stride` elements apart; not yet rounded
template <int K>  // routed experts of a row
P_FN float joined(const P_DEV bfloat16_t* routed, uint stride, float last) {
  float total = p_load(routed[0]);
  #pragma unroll
  for (uint i = 1u; i < uint(K); i++) total = p_flush(p_add(total, p_load(routed[i * stride])));
  return p_add(total, last);
}
