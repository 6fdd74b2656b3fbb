// Rotates adjacent pairs of the last RD of D elements by the angle of each row's position; the others are copied.
// (a, b) -> (a c - b s, a s + b c), or with -s when INVERSE.
// Launched by no model, but judged by itself: alone.py says why.
//
// Order: float32, both products of a sum rounded and flushed, then the sum; one rounding to bfloat16.
// Threads: one a pair; grid (D / 2 pairs, H heads, R rows).
#include "turn.h"

template <
    int H,         // heads of a row
    int D,         // elements of a head
    int RD,        // of which the last are turned
    bool INVERSE>  // turned back
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
