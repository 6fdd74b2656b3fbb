// score = sum over heads of weight * relu(q . k), for packed FP4 queries and keys with a scale to every 32 elements. A
// column's key lies at a place below N in the cache, else at place - N in this round's keys; an empty place (-1) gives
// -inf.
//
// Order, in float32, everything flushed: the dot of a 32-block of codes is exact; times the product of the two scales;
// blocks added in order; the heads' weighted values added by halves, h and h + H / 2 first (of an odd number the middle
// one waits).
// Threads: T neighbouring threads own a column, each every T-th head, so that the last steps of the halving are
// shuffles; a threadgroup of 32 G threads owns 32 G / T columns of one row and decodes the queries once. Grid (columns,
// R rows).
#include "codes.h"

// N sums become half as many: one step of the addition by halves
template <int N>  // sums before this step
P_FN void index_fold(P_THREAD float* a) {
  #pragma unroll
  for (int i = 0; i < N / 2; i++) a[i] = p_flush(p_add(a[i], a[i + (N + 1) / 2]));
}

template <
    int H,      // heads of a query
    int K,      // elements of a key
    int T,      // neighbouring threads that share a column, a power of two
    bool WIDE>  // rows of keys begin at multiples of 4 bytes
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
  constexpr int N = H / T, ROOM = K + 4;  // heads of a thread; queries of neighbouring heads lie in other banks
  P_SHARED float query[H * ROOM];     // the row's queries, decoded, without their scales
  P_SHARED float unit[H * (K / 32)];  // their scales
  P_SHARED float weight[H];           // the heads' weights
  // ---- the row's queries decoded into threadgroup memory
  uint me = thread_index_in_threadgroup, width = threads_per_threadgroup.x, bytes = uint(K / 2 + K / 32);
  ulong row = threadgroup_position_in_grid.y;
  for (uint i = me; i < uint(H * K / 2); i += width) {
    uint h = i / uint(K / 2), at = i % uint(K / 2);
    uint pair = queries[(row * uint(H) + h) * bytes + at];
    query[h * uint(ROOM) + 2u * at] = p_e2m1(pair & 15u);
    query[h * uint(ROOM) + 2u * at + 1u] = p_e2m1(pair >> 4);
  }
  for (uint i = me; i < uint(H * (K / 32)); i += width) {
    unit[i] = p_ue8m0(queries[(row * uint(H) + i / uint(K / 32)) * bytes + uint(K / 2) + i % uint(K / 32)]);
  }
  for (uint i = me; i < uint(H); i += width) weight[i] = p_load(weights[row * uint(H) + i]);
  P_BARRIER();
  // ---- this thread's column and where its key lies
  int held = sizes[0];
  uint c = uint(sizes[1]), column = (threadgroup_position_in_grid.x * width + me) / uint(T), part = me % uint(T);
  int place = column < c ? places[ulong(segment[row]) * c + column] : -1;
  bool empty = place < 0;
  place = empty ? 0 : place;
  const P_DEV uchar* key = place < held ? cache + ulong(place) * bytes : fresh + ulong(place - held) * bytes;
  // ---- its heads' dots with the key, block by block
  float sum[N];
  // one block's text for all: a longer program costs more to fetch than it saves
  #pragma unroll 1
  for (uint b = 0u; b < uint(K / 32); b++) {
    float v[32], s = p_ue8m0(key[uint(K / 2) + b]);
    #pragma unroll
    for (uint i = 0u; i < 4u; i++) {
      uint at = b * 16u + i * 4u, word;
      if (WIDE) {
        word = *(const P_DEV uint*)(key + at);
      } else {
        word = uint(key[at]) | (uint(key[at + 1u]) << 8) | (uint(key[at + 2u]) << 16) | (uint(key[at + 3u]) << 24);
      }
      #pragma unroll
      for (uint j = 0u; j < 8u; j++) v[i * 8u + j] = p_e2m1(word >> (4u * j) & 15u);
    }
    #pragma unroll
    for (int n = 0; n < N; n++) {
      uint h = part + uint(n * T);
      float dot = 0.0f;
      #pragma unroll
      for (uint i = 0u; i < 32u; i++) dot = p_fma(query[h * uint(ROOM) + b * 32u + i], v[i], dot);
      float scaled = p_mulz(dot, p_mulz(unit[h * uint(K / 32) + b], s));
      sum[n] = b == 0u ? scaled : p_flush(p_add(sum[n], scaled));
    }
  }
  // ---- relu, weights, and the heads added by halves: in this thread, then over its neighbours
  #pragma unroll
  for (int n = 0; n < N; n++) sum[n] = p_mulz(p_max(sum[n], 0.0f), weight[part + uint(n * T)]);
  constexpr int A = (N + 1) / 2, B = (A + 1) / 2, C = (B + 1) / 2, D = (C + 1) / 2, F = (D + 1) / 2;
  index_fold<N>(sum);
  index_fold<A>(sum);
  index_fold<B>(sum);
  index_fold<C>(sum);
  index_fold<D>(sum);
  index_fold<F>(sum);
  float total = sum[0];
  #pragma unroll
  for (int d = T / 2; d > 0; d = d / 2) total = p_flush(p_add(total, simd_shuffle_xor(total, ushort(d))));
  if (part == 0u && column < c) p_store(scores + row * c + column, empty ? p_neg(p_inf()) : total);
}
