// The routed experts' SwiGLU times their weights, and the shared expert's, each rounded to bfloat16 and then to FP8
// values, which bfloat16 holds exactly.
//
// Order: those of swiglu_weighted and act_quant_fp8_round, whose bits these are.
// Threads: a thread holds V neighbours of a row. Of a row's threadgroups, P share each of its E routed rows, the last Q
// its shared row; threads past a row's end only take part in shuffles.
#include "act_quant/fp8_block.h"
#include "swiglu_weighted/swiglu.h"

template <
    int E,  // routed experts of a row
    int I,  // inner width of a routed expert
    int J,  // inner width of the shared expert
    int V,  // neighbours of a row that a thread holds
    int P,  // threadgroups that share a routed row
    int Q>  // threadgroups that share the shared row
[[kernel]] void swiglu_round(
    const device bfloat16_t* gate,         // [R, E, I]
    const device bfloat16_t* up,           // [R, E, I]
    const device float* weights,           // [R, E]
    const device bfloat16_t* shared_gate,  // [R, J]
    const device bfloat16_t* shared_up,    // [R, J]
    const constant float* limit,           // [1]
    device bfloat16_t* y,                  // [R, E, I]
    device bfloat16_t* shared_y,           // [R, J]
    uint3 threadgroup_position_in_grid [[threadgroup_position_in_grid]],
    uint3 threads_per_threadgroup [[threads_per_threadgroup]],
    uint thread_index_in_threadgroup [[thread_index_in_threadgroup]]) {
  uint row = threadgroup_position_in_grid.y, group = threadgroup_position_in_grid.x;
  bool routed = group < uint(E * P);
  uint pair = row * uint(E) + group / uint(P), part = routed ? group % uint(P) : group - uint(E * P);
  uint at = (part * threads_per_threadgroup.x + thread_index_in_threadgroup) * uint(V),
       width = routed ? uint(I) : uint(J);
  ulong start = routed ? ulong(pair) * uint(I) : ulong(row) * uint(J);
  const P_DEV bfloat16_t* g = (routed ? gate : shared_gate) + start;
  const P_DEV bfloat16_t* u = (routed ? up : shared_up) + start;
  float weight = routed ? p_load(weights[pair]) : 1.0f;
  float v[V];
  for (uint i = 0u; i < uint(V); i++) {
    float t = at < width ? swiglu(p_load(g[at + i]), p_load(u[at + i]), limit[0]) : 0.0f;
    v[i] = p_round_bf(p_mul(weight, t));
  }
  uint scale = fp8_scale<V>(v);
  if (at >= width) return;
  P_DEV bfloat16_t* to = (routed ? y : shared_y) + start + at;
  for (uint i = 0u; i < uint(V); i++) p_store(to + i, fp8_value(v[i], scale));
}
