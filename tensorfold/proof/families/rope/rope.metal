// Rotates adjacent pairs of the last RD of D dims by the angle of each row's position; the leading dims are copied.
// (a, b) -> (a c - b s, a s + b c), or with -s when INVERSE; float32, every product rounded (and flushed), one rounding to bfloat16.
// One thread a pair; grid (32 threads a group over D / 2 pairs, H heads, R rows).
#include "turn.h"

template <int H, int D, int RD, bool INVERSE>
[[kernel]] void rope(
    const device bfloat16_t* x,       // [R, H, D]
    const device float* table,        // [P, RD / 2, 2]: cos, sin
    const device int* positions,      // [R]
    device bfloat16_t* y,             // [R, H, D]
    uint3 thread_position_in_grid [[thread_position_in_grid]]) {
  uint pair = thread_position_in_grid.x, head = thread_position_in_grid.y, row = thread_position_in_grid.z;
  if (pair >= uint(D / 2)) return;
  ulong at = (ulong(row) * uint(H) + head) * uint(D) + 2u * pair;
  float v[2];
  v[0] = p_load(x[at]);
  v[1] = p_load(x[at + 1u]);
  if (pair >= uint((D - RD) / 2)) {
    ulong entry = (ulong(positions[row]) * uint(RD / 2) + (pair - uint((D - RD) / 2))) * 2u;
    rope_turn<INVERSE>(v, table[entry], table[entry + 1u]);
  }
  p_store(y + at, v[0]);
  p_store(y + at + 1u, v[1]);
}
