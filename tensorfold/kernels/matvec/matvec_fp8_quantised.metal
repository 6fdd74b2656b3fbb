// y = w x for e4m3 weights in 32x32 blocks, rounded to bfloat16 and then quantised to FP8 planes. With G > 1 groups,
// rows g N / G .. of w see part g of x (wo_a).
//
// Order: those of matvec_fp8 and act_quant_fp8_planes, whose bits these are.
// Threads: a threadgroup owns whole blocks of 32 rows of w, of one group. Once the sums stand in threadgroup memory a
// SIMD group takes a block of one row of x at a time, an element a lane. Grid as matvec_fp8's.
#include "act_quant/fp8_block.h"
#include "fp8.h"

template <
    typename X,  // type of x: float planes or bfloat16 rows
    int G,       // groups of rows of w, which see a part of x each
    int N,       // rows of w
    int K,       // columns of w: elements of a row of x (of its part)
    int R,       // rows of x a threadgroup takes at once
    int LK,      // lanes that share a row's running sums
    int SW,      // SIMD groups that share them: LK SW running sums
    int WN,      // SIMD groups side by side on other rows of w
    int TN,      // neighbouring rows of w a lane sums
    int PF,      // chunks of each loaded at a time
    int DB,      // 1: the next ones are loaded before these are summed
    int W>       // bytes a load of w may take: 8 or 16
[[kernel]] void matvec_fp8_quantised(
    const device uchar* w,            // [N, K]
    const device uchar* s,            // [N / 32, K / 32]
    const device X* x,                // bfloat16 [rows, G K] or float [rows, G, 4, K / 16, 4]
    device float* y,                  // [rows, 4, N / 16, 4]
    uint3 threadgroup_position_in_grid [[threadgroup_position_in_grid]],
    uint3 threadgroups_per_grid [[threadgroups_per_grid]],
    uint thread_index_in_simdgroup [[thread_index_in_simdgroup]],
    uint simdgroup_index_in_threadgroup [[simdgroup_index_in_threadgroup]]) {
  P_SHARED float red[SW * P_TILE * R];
  const uint count = uint(N / G), each = P_TILES(count);
  // ---- which rows of w and of x are this threadgroup's, and which of them this lane's
  uint tile = threadgroup_position_in_grid.x, part = tile / each;
  if (part >= uint(G)) return;
  uint rows = threadgroups_per_grid.y * uint(R) - (threadgroups_per_grid.x - uint(G) * each);
  uint group = threadgroup_position_in_grid.y, lane = thread_index_in_simdgroup, simd = simdgroup_index_in_threadgroup;
  uint start = (tile - part * each) * uint(P_TILE), v = simd % uint(SW) * uint(LK) + lane % uint(LK);
  uint row = start + (simd / uint(SW) * (32u / uint(LK)) + lane / uint(LK)) * uint(TN);
  // ---- the sums: fp8.h
  float acc[TN * R];
  fp8_sums<K, G * K, R, LK * SW, TN, PF, DB, W, false>(
      w + ulong(part * count) * uint(K), s + (part * count >> 5) * uint(K / 32), x + part * uint(K), rows, group, row,
      count, v, acc);
  // ---- all sums into threadgroup memory, then quantised, a block of 32 rows of w at a time
  share_sums<R, LK, SW, WN, TN>(acc, red, lane, simd);
  P_BARRIER();
  for (uint task = simd; task < uint(P_TILE / 32 * R); task += uint(SW * WN)) {
    uint r = task % uint(R), n = task / uint(R) * 32u + lane, to;
    float value[1];
    value[0] = p_round_bf(parts_sum<SW>(red, uint(P_TILE * R), n * uint(R) + r));
    uint scale = fp8_scale<1>(value);
    bool mine = own_row<R>(rows, group, r, to);
    if (mine && start + n < count) {
      p_store(y + ulong(to) * uint(N) + fp8_plane<N>(part * count + start + n), fp8_value(value[0], scale));
    }
  }
}
