// V neighbours of a row before they are packed: normed (or not), turned, each step rounded to bfloat16. Knows no
// format.
#pragma once
#include "rms_norm/rms.h"
#include "turn.h"

// elements at .. at + V - 1 of D (V even; zeros past the end), of which the last RD turn by `angles`
template <
    int D,      // elements of a row
    int RD,     // of which the last are turned
    int V,      // neighbours that a thread holds, an even number
    bool NORM>  // normed first
P_FN void normed_and_turned(
    const P_DEV bfloat16_t* x, const P_DEV bfloat16_t* w, float factor, const P_DEV float* angles, uint at,
    P_THREAD float* v) {
  for (uint i = 0u; i < uint(V); i++) {
    float e = at < uint(D) ? p_load(x[at + i]) : 0.0f;
    if (NORM) e = at < uint(D) ? rms_scaled(p_load(w[at + i]), e, factor) : 0.0f;
    // without a norm the value stays, and a NaN becomes the one that rope writes
    v[i] = p_round_bf(e);
  }
  for (uint i = 0u; i < uint(V); i += 2u) {
    if (at + i >= uint(D - RD) && at < uint(D)) {
      uint angle = at + i - uint(D - RD);
      rope_turn<false>(v + i, angles[angle], angles[angle + 1u]);
      v[i] = p_round_bf(v[i]);
      v[i + 1u] = p_round_bf(v[i + 1u]);
    }
  }
}
