// y = bf16(weight * (silu(g) * u)), g = min(gate, limit), u = up clamped to -limit..limit, all in float32, one
// rounding.
//
// Order: sigmoid(g), times g, times u, times the weight (only when WEIGHTED); every product but the last is flushed.
// Threads: one an element; grid (I over threads, all the leading axes together).
#include "swiglu.h"

template <
    int I,          // inner width
    bool WEIGHTED>  // times the routing weight
[[kernel]] void swiglu_weighted(
    const device bfloat16_t* gate,    // [R, k, I]
    const device bfloat16_t* up,      // [R, k, I]
    const device float* weights,      // [R, k]
    const constant float* limit,      // [1]
    device bfloat16_t* y,             // [R, k, I]
    uint3 thread_position_in_grid [[thread_position_in_grid]]) {
  uint i = thread_position_in_grid.x, pair = thread_position_in_grid.y;
  if (i >= uint(I)) return;
  ulong at = ulong(pair) * uint(I) + i;
  float t = swiglu(p_load(gate[at]), p_load(up[at]), limit[0]);
  if (WEIGHTED) t = p_mul(p_load(weights[pair]), t);
  p_store(y + at, t);
}
