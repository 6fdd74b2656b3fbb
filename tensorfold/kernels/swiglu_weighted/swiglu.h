// One element of SwiGLU with clamps, in the order swiglu_weighted.metal states. Knows no weight.
#pragma once
#include "maths.h"

// silu(min(gate, most)) * (up clamped to -most..most), not yet rounded
P_FN float swiglu(float gate, float up, float most) {
  float g = p_min(gate, most);
  float u = p_max(p_min(up, most), p_neg(most));
  return p_mulz(p_mulz(g, p_sigmoid(g)), u);
}
