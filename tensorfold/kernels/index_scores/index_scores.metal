// score = sum over heads of weight * relu(q . k), for packed FP4 queries and keys with a scale to every 32 elements; float32.
// A column's key lies at a place below N in the cache, else at place - N in this round's keys; an empty place (-1) gives -inf.
// Order: the dot of a 32-block of codes is exact; times the product of the two scales; blocks added in order; the heads'
// weighted values added by halves, h and h + H / 2 first (of an odd number the middle one waits). Everything flushed.
// A threadgroup of 32 G threads owns one row and E columns a thread, a threadgroup's width apart; queries decoded once.
// WIDE: rows of keys begin at multiples of 4 bytes.
#include "codes.h"

// N sums become half as many: one step of the addition by halves
template <int N> P_FN void index_fold(P_THREAD float* a) {
  #pragma unroll
  for (int i = 0; i < N / 2; i++) a[i] = p_flush(p_add(a[i], a[i + (N + 1) / 2]));
}

template <int H, int K, int E, bool WIDE>
[[kernel]] void index_scores(
    const device uchar* queries,      // [R, H, K / 2 + K / 32]
    const device bfloat16_t* weights, // [R, H]
    const device uchar* cache,        // [N, K / 2 + K / 32]
    const device uchar* fresh,        // [M, K / 2 + K / 32]
    const device int* places,         // [S, C]
    const device int* segment,        // [R]
    const constant int* sizes,        // [2]: N, C
    device float* scores,             // [R, C]
    uint3 threadgroup_position_in_grid [[threadgroup_position_in_grid]],
    uint3 threads_per_threadgroup [[threads_per_threadgroup]],
    uint thread_index_in_threadgroup [[thread_index_in_threadgroup]]) {
  P_SHARED float query[H * K];
  P_SHARED float unit[H * (K / 32)];
  P_SHARED float weight[H];
  uint me = thread_index_in_threadgroup, width = threads_per_threadgroup.x, bytes = uint(K / 2 + K / 32);
  ulong row = threadgroup_position_in_grid.y;
  for (uint i = me; i < uint(H * K / 2); i += width) {
    uint pair = queries[(row * uint(H) + i / uint(K / 2)) * bytes + i % uint(K / 2)];
    query[2u * i] = p_e2m1(pair & 15u);
    query[2u * i + 1u] = p_e2m1(pair >> 4);
  }
  for (uint i = me; i < uint(H * (K / 32)); i += width) {
    unit[i] = p_ue8m0(queries[(row * uint(H) + i / uint(K / 32)) * bytes + uint(K / 2) + i % uint(K / 32)]);
  }
  for (uint i = me; i < uint(H); i += width) weight[i] = p_load(weights[row * uint(H) + i]);
  P_BARRIER();
  int held = sizes[0];
  uint c = uint(sizes[1]), first = threadgroup_position_in_grid.x * width * uint(E) + me;
  ulong list = ulong(segment[row]) * c;
  float sum[E][H];
  bool empty[E];
  const P_DEV uchar* key[E];
  #pragma unroll
  for (int e = 0; e < E; e++) {
    uint column = first + uint(e) * width;
    int place = column < c ? places[list + column] : -1;
    empty[e] = place < 0;
    place = empty[e] ? 0 : place;
    key[e] = place < held ? cache + ulong(place) * bytes : fresh + ulong(place - held) * bytes;
  }
  for (uint b = 0u; b < uint(K / 32); b++) {
    float v[E][32], s[E];
    #pragma unroll
    for (int e = 0; e < E; e++) {
      s[e] = p_ue8m0(key[e][uint(K / 2) + b]);
      #pragma unroll
      for (uint i = 0u; i < 4u; i++) {
        uint at = b * 16u + i * 4u;
        uint word;
        if (WIDE) {
          word = *(const P_DEV uint*)(key[e] + at);
        } else {
          word = uint(key[e][at]) | (uint(key[e][at + 1u]) << 8) | (uint(key[e][at + 2u]) << 16) | (uint(key[e][at + 3u]) << 24);
        }
        #pragma unroll
        for (uint j = 0u; j < 8u; j++) v[e][i * 8u + j] = p_e2m1(word >> (4u * j) & 15u);
      }
    }
    #pragma unroll
    for (uint h = 0u; h < uint(H); h++) {
      #pragma unroll
      for (int e = 0; e < E; e++) {
        float dot = 0.0f;
        #pragma unroll
        for (uint i = 0u; i < 32u; i++) dot = p_fma(query[h * uint(K) + b * 32u + i], v[e][i], dot);
        float part = p_mulz(dot, p_mulz(unit[h * uint(K / 32) + b], s[e]));
        sum[e][h] = b == 0u ? part : p_flush(p_add(sum[e][h], part));
      }
    }
  }
  #pragma unroll
  for (int e = 0; e < E; e++) {
    #pragma unroll
    for (uint h = 0u; h < uint(H); h++) sum[e][h] = p_mulz(p_max(sum[e][h], 0.0f), weight[h]);
    constexpr int A = (H + 1) / 2, B = (A + 1) / 2, C = (B + 1) / 2, D = (C + 1) / 2, F = (D + 1) / 2;
    index_fold<H>(sum[e]);
    index_fold<A>(sum[e]);
    index_fold<B>(sum[e]);
    index_fold<C>(sum[e]);
    index_fold<D>(sum[e]);
    index_fold<F>(sum[e]);
    uint column = first + uint(e) * width;
    if (column < c) p_store(scores + row * c + column, empty[e] ? p_neg(p_inf()) : sum[e][0]);
  }
}
