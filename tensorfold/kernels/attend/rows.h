// Packed rows of attention: window rows (e4m3 codes, a UE8M0 scale to 32 elements) and compressed rows (e2m1 nibbles,
// an e4m3 scale to 16); codes first, then scales. Knows no cache.
#pragma once
#include "wide.h"

// Threadgroup memory that is read 16 bytes at a time.
struct AttendQuad {
  float4 at;
};

#define P_ROW_BYTES(D, NEAR) ((NEAR) ? (D) + (D) / 32 : (D) / 2 + (D) / 16)
#define P_CODE_BYTES(D, NEAR) ((NEAR) ? (D) : (D) / 2)

// Where the row at `place` begins: below `held` in the cache, else among this round's rows.
P_FN const P_DEV uchar* attend_row(
    const P_DEV uchar* cache, const P_DEV uchar* fresh, int held, int place, uint bytes) {
  return place < held ? cache + ulong(place) * bytes : fresh + ulong(place - held) * bytes;
}
// `count` bytes, at most 4, the first one lowest.
P_FN uint attend_bytes(const P_DEV uchar* at, uint count) {
  uint word = 0u;
  #pragma unroll
  for (uint i = 0u; i < 4u; i++) word = word | (i < count ? uint(at[i]) << (8u * i) : 0u);
  return word;
}
// N words (1, 2 or 4), one load of 4 N bytes where rows are WIDE.
template <
    int N,      // words: 1, 2 or 4
    bool WIDE>  // rows begin at multiples of 16 bytes
P_FN void attend_words(const P_DEV uchar* at, P_THREAD uint* word) {
  if (WIDE && N == 4) {
    uint4 q = *(const P_DEV uint4*)at;
    word[0] = q.x;
    word[1] = q.y;
    word[N - 2] = q.z;
    word[N - 1] = q.w;
  } else if (WIDE && N == 2) {
    uint2 q = *(const P_DEV uint2*)at;
    word[0] = q.x;
    word[N - 1] = q.y;
  } else if (WIDE) {
    word[0] = *(const P_DEV uint*)at;
  } else {
    #pragma unroll
    for (uint i = 0u; i < uint(N); i++) word[i] = attend_bytes(at + 4u * i, 4u);
  }
}
// A scale, with what P_E2M1_UNIT asks for. Bytes of window scales below 96 count as zero (the quantiser writes none
// below 105): what is left, times a P of 2^-64 or more, stays far above the subnormal numbers.
template <bool NEAR>  // window rows, else compressed ones
P_FN float attend_unit(uint byte) {
  if (NEAR) return p_float(byte == 255u ? 0x7fc00000u : byte < 96u ? 0u : byte << 23);
  return p_mul(p_e4m3x4(byte).x, P_E4M3_UNIT * P_E2M1_UNIT);
}
// Values of a word of codes, 4 of a window row or 8 of a compressed one, before their scale.
template <bool NEAR>  // window rows, else compressed ones
P_FN void attend_decoded(uint word, P_THREAD float* v) {
  float4 a, b;
  if (NEAR) {
    a = p_e4m3x4(word);
    v[0] = P_E4M3_UNIT == 1.0f ? a.x : p_mul(a.x, P_E4M3_UNIT);
    v[1] = P_E4M3_UNIT == 1.0f ? a.y : p_mul(a.y, P_E4M3_UNIT);
    v[2] = P_E4M3_UNIT == 1.0f ? a.z : p_mul(a.z, P_E4M3_UNIT);
    v[3] = P_E4M3_UNIT == 1.0f ? a.w : p_mul(a.w, P_E4M3_UNIT);
  } else {
    p_e2m1x8(word, a, b);
    v[0] = a.x;
    v[1] = a.y;
    v[2] = a.z;
    v[3] = a.w;
    v[4] = b.x;
    v[5] = b.y;
    v[6] = b.z;
    v[7] = b.w;
  }
}
