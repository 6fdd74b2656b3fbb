// Philox 4x32-10 (Salmon et al. 2011): four random words from a 128-bit counter and a 64-bit key. Knows no sampling.
#pragma once
#include "portable.h"

P_FN uint4 p_philox(uint4 c, uint2 k) {
  for (int i = 0; i < 10; i++) {
    uint high0 = p_mulhi(0xd2511f53u, c.x), low0 = 0xd2511f53u * c.x;
    uint high1 = p_mulhi(0xcd9e8d57u, c.z), low1 = 0xcd9e8d57u * c.z;
    uint4 n;
    n.x = high1 ^ c.y ^ k.x;
    n.y = low1;
    n.z = high0 ^ c.w ^ k.y;
    n.w = low0;
    c = n;
    k.x = k.x + 0x9e3779b9u;
    k.y = k.y + 0xbb67ae85u;
  }
  return c;
}
