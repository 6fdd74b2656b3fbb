// hc_post, and in the same launch what hc_dots gives for the new streams.
//
// Order, and how threads share the work: post_dots.h.
#include "hc_mix/hc_dots.h"
#include "hc_post.h"

#define P_OWN(row, d) p_load(y[ulong(row) * uint(D) + (d)])

template <
    int D,  // elements of a stream
    int N,  // streams of a row
    int M,  // products of a row, rows of fn
    int G,  // SIMD groups of a threadgroup
    int B,  // neighbouring places of a chunk that a SIMD group sums
    int H>  // rows that share what is read of fn
[[kernel]] void hc_post_dots(
    const device bfloat16_t* y,       // [R, D]
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
#include "post_dots.h"
}
