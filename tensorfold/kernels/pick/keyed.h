// The exponential noise of keyed sampling: log E of (seed, position, token), restated from the engine. Knows no logits.
//
// Order: every product and every sum is rounded by itself (p_mul, p_add), never fused, as the engine runs them.
#pragma once
#include "philox.h"

// log(2^k (1 + f)): ((((f z) P + k LN2_LOW) - z/2) + f) + k LN2_HIGH, z = f f, P by Horner's rule
P_FN float keyed_log_of(int exponent, float f) {
  float k = float(exponent), z = p_mul(f, f);
  float p = p_add(p_mul(f, -0.07646104693412781f), 0.1277911514043808f);
  p = p_add(p_mul(p, f), -0.13164186477661133f);
  p = p_add(p_mul(p, f), 0.14199694991111755f);
  p = p_add(p_mul(p, f), -0.16622765362262726f);
  p = p_add(p_mul(p, f), 0.2000129222869873f);
  p = p_add(p_mul(p, f), -0.25000837445259094f);
  p = p_add(p_mul(p, f), 0.3333333134651184f);
  float tail = p_add(p_mul(p_mul(f, z), p), p_mul(k, -0.00021219444170128554f));
  return p_add(p_add(f, p_sub(tail, p_mul(z, 0.5f))), p_mul(k, 0.693359375f));
}
// x = 2^k (1 + f) with 1 + f in sqrt(1/2) .. sqrt(2), exactly; x positive and normal
P_FN int keyed_exponent(float x) { return (as_type<int>(x) - 0x3f3504f3) >> 23; }
P_FN float keyed_fraction(float x, int k) { return p_sub(as_type<float>(as_type<int>(x) - k * 8388608), 1.0f); }
// log E, E = -log1p(-v), v = (word + 0.5) / 2^32, through min(v, 1 - v)
P_FN float keyed_noise(uint word) {
  uint folded = p_minu(word, ~word);
  float low = p_add(float(folded & 0xffffu), 0.5f);
  float y = p_mul(p_add(p_mul(float(folded >> 16), 65536.0f), low), 2.3283064365386963e-10f);
  int k = keyed_exponent(y);
  float f = keyed_fraction(y, k);
  if ((word >> 31) == 0u) {
    bool near_one = y < 0.2928932309150696f;
    k = near_one ? 0 : -1;
    f = near_one ? p_neg(y) : p_sub(1.0f, p_mul(y, 2.0f));
  }
  float e = p_neg(keyed_log_of(k, f));
  int n = keyed_exponent(e);
  return keyed_log_of(n, keyed_fraction(e, n));
}
