// One element of one new stream, in the order hc_post.metal states. Knows no layout.
#pragma once
#include "portable.h"

// a column of comb and an element of N streams; post times the sublayer's own output is added last
template <int N>  // streams of a row
P_FN float spread(const P_THREAD float* c, const P_THREAD float* v, float post, float own) {
  float mixed = p_mulz(c[0], v[0]);
  #pragma unroll
  for (int i = 1; i < N; i++) mixed = p_flush(p_fma(c[i], v[i], mixed));
  return p_add(mixed, p_mulz(post, own));
}
