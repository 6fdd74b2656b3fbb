// Arithmetic that a device may do its own way, one thread an element.
#include "portable.h"

[[kernel]] void arithmetic(
    const device float* a,
    const device float* b,
    const device float* c,
    const device float* tiny,
    device float* fused,
    device float* product_sum,
    device float* quotient,
    device float* root,
    device float* rounded,
    device float* doubled,
    device float* halved,
    device float* moved,
    uint3 thread_position_in_grid [[thread_position_in_grid]]) {
  uint i = thread_position_in_grid.x;
  fused[i] = p_fma(a[i], b[i], c[i]);
  product_sum[i] = p_add(p_mul(a[i], b[i]), c[i]);
  quotient[i] = p_div(a[i], b[i]);
  root[i] = p_sqrt(p_abs(a[i]));
  rounded[i] = p_rint(p_mul(a[i], 8.0f));
  doubled[i] = p_add(tiny[i], tiny[i]);
  halved[i] = p_mul(p_float(0x00c00000u + (p_bits(tiny[i]) & 0u)), 0.5f);
  moved[i] = p_float(p_bits(tiny[i]));
}
