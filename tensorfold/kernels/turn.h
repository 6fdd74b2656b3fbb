// One pair of a rotary embedding. Knows no layout and no table.
#pragma once
#include "portable.h"

// (a, b) -> (a c - b s, a s + b c), or with -s when INVERSE; every product rounded (and flushed), then their sum.
template <bool INVERSE>  // turned back
P_FN void rope_turn(P_THREAD float* v, float c, float s) {
  float a = v[0], b = v[1];
  if (INVERSE) s = p_neg(s);
  v[0] = p_sub(p_mulz(a, c), p_mulz(b, s));
  v[1] = p_add(p_mulz(a, s), p_mulz(b, c));
}
