// The K best of the first `visible` scores of a row, ascending, -1 at the end; ties to the lower index, NaN below -inf.
// FLAGS: of all C scores, as 1 or 0 for each; -inf and NaN are never taken. BLOCK > 0: a score whose block of BLOCK
// neighbours is not kept counts as -inf.
//
// Order: none, all comparisons are of integers.
// Threads: a threadgroup of 32 G threads owns one row: eight passes find the K-th largest key, 4 bits at a time, each
// thread counting in its own 16-bit column; then each SIMD group writes its stretch.
#include "portable.h"

// Larger is better: a NaN is 1, every other value more; 0 is never taken. -0 counts as +0.
P_FN uint select_key(float v, bool flags) {
  uint u = p_bits(p_add(v, 0.0f));
  uint ordered = (u & 0x80000000u) != 0u ? ~u : u | 0x80000000u;
  uint key = p_isnan(v) ? 1u : ordered;
  return flags && key <= 0x007fffffu ? 0u : key;
}
P_FN uint select_lanes(uint v) {
  for (uint d = 16u; d > 0u; d = d / 2u) v = v + simd_shuffle_xor(v, ushort(d));
  return v;
}
#define SELECT_KEY(i) \
  select_key(BLOCK > 0 && kept[row * uint(blocks) + (i) / uint(BLOCK > 0 ? BLOCK : 1)] == 0 ? \
             p_neg(p_inf()) : p_load(scores[row * c + (i)]), FLAGS)

template <
    bool FLAGS,  // a 1 or 0 for each score, else rows
    int BLOCK,   // neighbouring scores that are kept or not together, 0: all are
    int G>       // SIMD groups of a threadgroup
[[kernel]] void select_rows(
    const device float* scores,       // [R, C]
    const device int* visible,        // [R]
    const device int* kept,           // [R, ceil(C / BLOCK)], any without BLOCK
    const constant int* sizes,        // [2]: C, K
    device int* rows,                 // [R, min(K, C)], with FLAGS [R, C]
    uint3 threadgroup_position_in_grid [[threadgroup_position_in_grid]],
    uint thread_index_in_simdgroup [[thread_index_in_simdgroup]],
    uint simdgroup_index_in_threadgroup [[simdgroup_index_in_threadgroup]],
    uint thread_index_in_threadgroup [[thread_index_in_threadgroup]]) {
  P_SHARED ushort count[16 * 32 * G];  // of each of 16 digits, how many keys a thread met
  P_SHARED uint total[16];             // of each digit, over all threads
  P_SHARED uint more[G];               // keys above the K-th largest in a SIMD group's stretch
  P_SHARED uint same[G];               // keys equal to it
  uint lane = thread_index_in_simdgroup, group = simdgroup_index_in_threadgroup, me = thread_index_in_threadgroup;
  uint c = uint(sizes[0]), k = p_minu(uint(sizes[1]), c),
       blocks = BLOCK > 0 ? (c + uint(BLOCK) - 1u) / uint(BLOCK > 0 ? BLOCK : 1) : 0u;
  ulong row = threadgroup_position_in_grid.x;
  uint n = FLAGS ? c : p_minu(uint(visible[row] < 0 ? 0 : visible[row]), c);
  // ---- the K-th largest key and how many of its equals are taken; with no more than K scores every key above 0 is
  uint least = 0u, need = 0u;
  if (n > k) {
    need = k;
    for (uint shift = 28u; shift < 32u; shift = shift - 4u) {
      for (uint j = 0u; j < 16u; j++) count[j * uint(32 * G) + me] = ushort(0);
      for (uint i = me; i < n; i += uint(32 * G)) {
        uint key = SELECT_KEY(i);
        // the digits above this one must be those found
        bool fits = shift == 28u || (key >> (shift + 4u)) == (least >> (shift + 4u));
        uint at = ((key >> shift) & 15u) * uint(32 * G) + me;
        count[at] = ushort(uint(count[at]) + (fits ? 1u : 0u));
      }
      P_BARRIER();
      for (uint j = group; j < 16u; j += uint(G)) {
        uint sum = 0u;
        for (uint i = lane; i < uint(32 * G); i += 32u) sum = sum + uint(count[j * uint(32 * G) + i]);
        sum = select_lanes(sum);
        if (lane == 0u) total[j] = sum;
      }
      P_BARRIER();
      uint digit = 15u;
      while (digit > 0u && need > total[digit]) {
        need = need - total[digit];
        digit = digit - 1u;
      }
      least = least | (digit << shift);
    }
    need = least == 0u ? 0u : need;
  }
  // ---- stretches of whole lanes, one a SIMD group: count first, so that each knows where it begins
  uint stretch = (n + uint(32 * G) - 1u) / uint(32 * G) * 32u;
  uint first = group * stretch, last = p_minu(first + stretch, n);
  uint above = 0u, equal = 0u;
  for (uint i = first + lane; i < last; i += 32u) {
    uint key = SELECT_KEY(i);
    above = above + (key > least ? 1u : 0u);
    equal = equal + (key == least ? 1u : 0u);
  }
  above = select_lanes(above);
  equal = select_lanes(equal);
  if (lane == 0u) {
    more[group] = above;
    same[group] = equal;
  }
  P_BARRIER();
  uint before = 0u, ties = 0u, all = 0u, all_ties = 0u;
  for (uint g = 0u; g < uint(G); g++) {
    before = before + (g < group ? more[g] : 0u);
    ties = ties + (g < group ? same[g] : 0u);
    all = all + more[g];
    all_ties = all_ties + same[g];
  }
  // ---- 32 scores at a time: who is taken, and where it is written
  for (uint base = first; base < last; base += 32u) {
    uint i = base + lane;
    uint key = i < last ? SELECT_KEY(i) : 0u;
    bool better = key > least, tied = i < last && key == least;
    // inclusive sums over the lanes: better ones in the low half, tied ones in the high half
    uint sum = (better ? 1u : 0u) | (tied ? 0x10000u : 0u), mine = sum;
    for (uint d = 1u; d < 32u; d = d * 2u) {
      uint other = simd_shuffle(sum, ushort((lane - d) & 31u));
      sum = sum + (lane >= d ? other : 0u);
    }
    uint whole = simd_shuffle(sum, ushort(31));
    uint earlier = ties + ((sum - mine) >> 16);
    bool taken = better || (tied && earlier < need);
    if (FLAGS) {
      if (i < last) rows[row * c + i] = taken ? 1 : 0;
    } else if (taken) {
      rows[row * k + before + ((sum - mine) & 0xffffu) + p_minu(earlier, need)] = int(i);
    }
    before = before + (whole & 0xffffu);
    ties = ties + (whole >> 16);
  }
  // ---- padding
  if (!FLAGS) {
    for (uint i = all + p_minu(all_ties, need) + me; i < k; i += uint(32 * G)) rows[row * k + i] = -1;
  }
}
