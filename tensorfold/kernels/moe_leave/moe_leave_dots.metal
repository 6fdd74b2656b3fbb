// moe_leave, and in the same launch what hc_dots gives for the new streams.
//
// Order, and how threads share the work: post_dots.h.
#include "hc_mix/hc_dots.h"
#include "hc_post/hc_post.h"
#include "moe_join/moe_join.h"

#define P_OWN(row, d) p_round_bf(joined<EXPERTS>(routed + ulong(row) * uint(EXPERTS * D) + (d), uint(D), \
                                                 p_load(shared[ulong(row) * uint(D) + (d)])))

template <
    int D,        // elements of a stream
    int N,        // streams of a row
    int EXPERTS,  // routed experts of a row
    int M,        // products of a row, rows of fn
    int G,        // SIMD groups of a threadgroup
    int B,        // neighbouring places of a chunk that a SIMD group sums
    int H>        // rows that share what is read of fn
[[kernel]] void moe_leave_dots(
    const device bfloat16_t* routed,  // [R, EXPERTS, D], ascending expert id
    const device bfloat16_t* shared,  // [R, D]
    const device bfloat16_t* x,       // [R, N, D]
    const device float* post,         // [R, N]
    const device float* comb,         // [R, N, N]
    const device float* fn,           // [M, N D]
    device bfloat16_t* out,           // [R, N, D]
    device float* part,               // [R, ceil(N D / 512), M + 1]
    uint3 threadgroup_position_in_grid [[threadgroup_position_in_grid]],
    uint thread_index_in_simdgroup [[thread_index_in_simdgroup]],
    uint simdgroup_index_in_threadgroup [[simdgroup_index_in_threadgroup]],
    uint thread_index_in_threadgroup [[thread_index_in_threadgroup]]) {
#include "hc_post/post_dots.h"
}
