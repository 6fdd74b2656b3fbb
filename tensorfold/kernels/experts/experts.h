// What experts_up and experts_down share: FP4 codes loaded by alignment, rows of x, the tree over lanes. Knows no
// expert.
#pragma once
#include "codes.h"
#include "wide.h"

// the 16 bytes of a block's codes, in loads of W bytes
template <int W>  // bytes a load of codes may take: 4, 8 or 16
P_FN uint4 experts_codes(const P_DEV uchar* at) {
  uint4 q;
  if (W == 16) {
    q = p_ldw((const P_DEV uint4*)at);
  } else if (W == 8) {
    uint2 low = ((const P_DEV uint2*)at)[0], high = ((const P_DEV uint2*)at)[1];
    q.x = low.x;
    q.y = low.y;
    q.z = high.x;
    q.w = high.y;
  } else {
    q.x = ((const P_DEV uint*)at)[0];
    q.y = ((const P_DEV uint*)at)[1];
    q.z = ((const P_DEV uint*)at)[2];
    q.w = ((const P_DEV uint*)at)[3];
  }
  return q;
}
// neighbours 8 j .. 8 j + 7 of block c of a row of x, exact: bfloat16 rows, or the float planes of act_quant_fp8_planes
template <int K>  // columns of a matrix: elements of a row of x
P_FN void experts_eight(const P_DEV bfloat16_t* row, uint c, uint j, P_THREAD float4& a, P_THREAD float4& b) {
  uint4 q = ((const P_DEV uint4*)row)[c * 4u + j];
  a.x = p_float(q.x << 16);
  a.y = p_float(q.x & 0xffff0000u);
  a.z = p_float(q.y << 16);
  a.w = p_float(q.y & 0xffff0000u);
  b.x = p_float(q.z << 16);
  b.y = p_float(q.z & 0xffff0000u);
  b.z = p_float(q.w << 16);
  b.w = p_float(q.w & 0xffff0000u);
}
template <int K>  // columns of a matrix: elements of a row of x
P_FN void experts_eight(const P_DEV float* row, uint c, uint j, P_THREAD float4& a, P_THREAD float4& b) {
  const P_DEV float4* plane = (const P_DEV float4*)row + 2u * c + j / 2u + j % 2u * 2u * uint(K / 16);
  a = plane[0];
  b = plane[K / 16];
}
// the tree over LK neighbouring lanes, neighbours first; every lane gets the sum, each addition flushed
template <int LK>  // lanes that share a row's running sums: as many sums
P_FN float experts_tree(float a) {
  if (LK > 1) a = p_flush(p_add(a, simd_shuffle_xor(a, ushort(1))));
  if (LK > 2) a = p_flush(p_add(a, simd_shuffle_xor(a, ushort(2))));
  if (LK > 4) a = p_flush(p_add(a, simd_shuffle_xor(a, ushort(4))));
  if (LK > 8) a = p_flush(p_add(a, simd_shuffle_xor(a, ushort(8))));
  if (LK > 16) a = p_flush(p_add(a, simd_shuffle_xor(a, ushort(16))));
  return a;
}
