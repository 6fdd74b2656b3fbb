// For matrix times vector: wide loads, several codes decoded at once, the tree over lanes. Knows no matrix.
//
// Decoded values are scaled by a power of two that differs between backends: multiply a sum of products by P_E4M3_UNIT
// or P_E2M1_UNIT (exact) before the block's scale is applied. Every code decodes as in codes.h, NaN included.
#pragma once
#include "portable.h"

#if defined(__METAL_VERSION__)
// a 16-byte load of weights that are used once; where there is no hint for that, a plain load
P_FN uint4 p_ldw(const device uint4* p) { return *p; }
// two halves in a word; half subnormals keep their value
P_FN float2 p_h2f(uint b) {
  half2 h = as_type<half2>(b);
  float2 r;
  r.x = float(h.x);
  r.y = float(h.y);
  return r;
}
#define P_E4M3_UNIT 256.0f
#define P_E2M1_UNIT 16384.0f
// four e4m3 codes, low byte first, through half: exponent and mantissa shifted into place, 0x7f made a NaN
P_FN float4 p_e4m3x4(uint q) {
  uint nan = ((q & 0x7f7f7f7fu) + 0x01010101u) & 0x80808080u;
  float2 a = p_h2f(((q << 8) & 0x80008000u) | ((q << 7) & 0x3f803f80u) | ((nan << 7) & 0x40004000u));
  float2 b = p_h2f((q & 0x80008000u) | ((q >> 1) & 0x3f803f80u) | ((nan >> 1) & 0x40004000u));
  float4 r;
  r.x = a.x;
  r.y = b.x;
  r.z = a.y;
  r.w = b.y;
  return r;
}
// eight e2m1 codes, low nibble first, through half subnormals
P_FN void p_e2m1x8(uint q, thread float4& lo, thread float4& hi) {
  float2 a = p_h2f(((q << 12) & 0x80008000u) | ((q << 9) & 0x0e000e00u));
  float2 b = p_h2f(((q << 8) & 0x80008000u) | ((q << 5) & 0x0e000e00u));
  float2 c = p_h2f(((q << 4) & 0x80008000u) | ((q << 1) & 0x0e000e00u));
  float2 d = p_h2f((q & 0x80008000u) | ((q >> 3) & 0x0e000e00u));
  lo.x = a.x;
  lo.y = b.x;
  lo.z = c.x;
  lo.w = d.x;
  hi.x = a.y;
  hi.y = b.y;
  hi.z = c.y;
  hi.w = d.y;
}
#else
P_FN uint4 p_ldw(const uint4* p) {
  uint4 r;
  asm("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
      : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w) : "l"(p));
  return r;
}
P_FN float2 p_h2f(uint b) {
  __half2 h;
  memcpy(&h, &b, 4);
  return __half22float2(h);
}
#define P_E4M3_UNIT 1.0f
#define P_E2M1_UNIT 64.0f
// the hardware's exact conversion (compute capability 8.9 and later)
P_FN float4 p_e4m3x4(uint q) {
  uint a, b;
  asm("{.reg .b16 l,h; mov.b32 {l,h}, %2; cvt.rn.f16x2.e4m3x2 %0, l; cvt.rn.f16x2.e4m3x2 %1, h;}"
      : "=r"(a), "=r"(b) : "r"(q));
  float2 u = p_h2f(a), v = p_h2f(b);
  float4 r;
  r.x = u.x;
  r.y = u.y;
  r.z = v.x;
  r.w = v.y;
  return r;
}
// e2m1 written as e4m3 codes of a 64th of the value
P_FN void p_e2m1x8(uint q, float4& lo, float4& hi) {
  float4 a = p_e4m3x4(((q << 4) & 0x80808080u) | ((q << 2) & 0x1c1c1c1cu));
  float4 b = p_e4m3x4((q & 0x80808080u) | ((q >> 2) & 0x1c1c1c1cu));
  lo.x = a.x;
  lo.y = b.x;
  lo.z = a.y;
  lo.w = b.y;
  hi.x = a.z;
  hi.y = b.z;
  hi.z = a.w;
  hi.w = b.w;
}
#endif
P_FN uint p_word(uint4 q, uint j) { return j == 0u ? q.x : j == 1u ? q.y : j == 2u ? q.z : q.w; }
// the two bfloat16 of a word; subnormals are flushed as every load does
P_FN float p_bflo(uint q) { return p_flush(p_float(q << 16)); }
P_FN float p_bfhi(uint q) { return p_flush(p_float(q & 0xffff0000u)); }

// One step of the tree over lanes: of H sums each lane keeps half and adds the partner's, so that each is formed once;
// an odd H is summed in both lanes, and the one with `up` does not own it. `base` is the first sum that is left.
template <int H>  // sums a lane holds before this step
P_FN void p_fold(P_THREAD float* a, ushort distance, bool up, P_THREAD uint& base, P_THREAD bool& own) {
  if (H % 2 == 0) {
    #pragma unroll
    for (int i = 0; i < H / 2; i++) {
      float keep = up ? a[i + H / 2] : a[i], send = up ? a[i] : a[i + H / 2];
      a[i] = p_add(keep, simd_shuffle_xor(send, distance));
    }
    base = base + (up ? uint(H / 2) : 0u);
  } else {
    #pragma unroll
    for (int i = 0; i < H; i++) a[i] = p_add(a[i], simd_shuffle_xor(a[i], distance));
    own = own && !up;
  }
}
// how many of Q sums a lane still holds after the tree over LK lanes
P_FN constexpr int p_left(int q, int lk) {
  while (lk > 1) {
    q = q % 2 == 0 ? q / 2 : q;
    lk = lk / 2;
  }
  return q;
}
// The tree over LK lanes, neighbours first, of Q sums a lane; S is the distance of neighbours, kl this lane's number.
#define P_TREE(a, Q, LK, S, kl, base, own) { \
  if (LK > 1) p_fold<Q>(a, ushort(S), (kl & 1u) != 0u, base, own); \
  if (LK > 2) p_fold<p_left(Q, 2)>(a, ushort(2 * S), (kl & 2u) != 0u, base, own); \
  if (LK > 4) p_fold<p_left(Q, 4)>(a, ushort(4 * S), (kl & 4u) != 0u, base, own); \
  if (LK > 8) p_fold<p_left(Q, 8)>(a, ushort(8 * S), (kl & 8u) != 0u, base, own); \
  if (LK > 16) p_fold<p_left(Q, 16)>(a, ushort(16 * S), (kl & 16u) != 0u, base, own); }
