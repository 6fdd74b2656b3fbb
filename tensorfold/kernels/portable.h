// The portable subset: one text that Metal, NVRTC (CUDA) and clang (the host emulator) compile to the same arithmetic.
// Knows no kernel. Kernels write P_* for what differs between the languages and p_* for every float operation.
#pragma once
#if defined(__METAL_VERSION__)
#if __METAL_VERSION__ < 320
#error "TensorFold kernels need Metal 3.2 (macOS 15 or later): older compilers may fuse a*b+c"
#endif
#pragma METAL fp math_mode(safe)
#pragma METAL fp contract(off)
#define P_FN inline
#define P_SHARED threadgroup
#define P_DEV device
#define P_CONST constant
#define P_THREAD thread
#define P_TG threadgroup
#define P_BARRIER() threadgroup_barrier(mem_flags::mem_threadgroup)
P_FN float p_mul(float a, float b) { return a * b; }
P_FN float p_add(float a, float b) { return a + b; }
P_FN float p_sub(float a, float b) { return a - b; }
P_FN float p_div(float a, float b) { return a / b; }
P_FN float p_sqrt(float a) { return precise::sqrt(a); }
P_FN float p_fma(float a, float b, float c) { return fma(a, b, c); }
P_FN float p_rint(float a) { return rint(a); }
P_FN uint p_mulhi(uint a, uint b) { return mulhi(a, b); }
P_FN uint p_ctz(uint a) { return ctz(a); }
#else
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#define P_FN __device__ __forceinline__
#define P_SHARED __shared__
// `device` and `constant` themselves must never be defined in CUDA: __device__ is made of the word device
#define P_DEV
#define P_CONST
#define P_THREAD
#define P_TG
#define P_BARRIER() __syncthreads()
typedef unsigned int uint;
typedef unsigned short ushort;
typedef unsigned char uchar;
typedef unsigned long long p_ulong;
#define ulong p_ulong
typedef __half half;
typedef __nv_bfloat16 bfloat16_t;
#define P_LINEAR_ (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z))
#define P_GLOBAL_(i) (blockIdx.i * blockDim.i + threadIdx.i)
#define thread_position_in_threadgroup threadIdx
#define threadgroup_position_in_grid blockIdx
#define threads_per_threadgroup blockDim
#define threadgroups_per_grid gridDim
#define thread_position_in_grid make_uint3(P_GLOBAL_(x), P_GLOBAL_(y), P_GLOBAL_(z))
#define thread_index_in_threadgroup P_LINEAR_
#define thread_index_in_simdgroup (P_LINEAR_ & 31u)
#define simdgroup_index_in_threadgroup (P_LINEAR_ >> 5)
template <class T> P_FN T simd_shuffle_xor(T v, ushort m) { return __shfl_xor_sync(0xffffffffu, v, m); }
template <class T> P_FN T simd_shuffle(T v, ushort l) { return __shfl_sync(0xffffffffu, v, l); }
template <class T> P_FN T simd_shuffle_down(T v, ushort d) { return __shfl_down_sync(0xffffffffu, v, d); }
template <class To, class From> P_FN To as_type(From x) {
  static_assert(sizeof(To) == sizeof(From), "as_type");
  To r;
  memcpy(&r, &x, sizeof(To));
  return r;
}
P_FN float p_mul(float a, float b) { return __fmul_rn(a, b); }
P_FN float p_add(float a, float b) { return __fadd_rn(a, b); }
P_FN float p_sub(float a, float b) { return __fsub_rn(a, b); }
P_FN float p_div(float a, float b) { return __fdiv_rn(a, b); }
P_FN float p_sqrt(float a) { return __fsqrt_rn(a); }
P_FN float p_fma(float a, float b, float c) { return __fmaf_rn(a, b, c); }
P_FN float p_rint(float a) { return rintf(a); }
P_FN uint p_mulhi(uint a, uint b) { return __umulhi(a, b); }
P_FN uint p_ctz(uint a) { return (uint)__ffs((int)a) - 1u; }
#endif
// ---- from here on the same text everywhere

P_FN uint p_bits(float a) { return as_type<uint>(a); }
P_FN float p_float(uint u) { return as_type<float>(u); }
P_FN float p_nan() { return p_float(0x7fc00000u); }
P_FN float p_inf() { return p_float(0x7f800000u); }
P_FN bool p_isnan(float a) { return (p_bits(a) & 0x7fffffffu) > 0x7f800000u; }
P_FN float p_neg(float a) { return p_float(p_bits(a) ^ 0x80000000u); }
P_FN float p_abs(float a) { return p_float(p_bits(a) & 0x7fffffffu); }
P_FN float p_copysign(float a, float s) { return p_float((p_bits(a) & 0x7fffffffu) | (p_bits(s) & 0x80000000u)); }
// of a NaN argument the other one is returned when the NaN is b
P_FN float p_max(float a, float b) { return a < b ? b : a; }
P_FN float p_min(float a, float b) { return b < a ? b : a; }

// Loads flush subnormals to signed zero; stores flush and write one NaN: devices that flush and devices that do not
// agree.
P_FN float p_flush(float a) {
  uint u = p_bits(a);
  return p_float((u & 0x7f800000u) == 0u ? u & 0x80000000u : u);
}
// a product that later sums see: where it may be subnormal, write this and not p_mul
P_FN float p_mulz(float a, float b) { return p_flush(p_mul(a, b)); }
P_FN float p_load(float a) { return p_flush(a); }
P_FN float p_load(bfloat16_t a) { return p_flush(p_float(uint(as_type<ushort>(a)) << 16)); }
P_FN float p_out(float a) { return p_isnan(a) ? p_nan() : p_flush(a); }
P_FN bfloat16_t p_f2bf(float a) {
  uint u = p_bits(p_flush(a));
  uint r = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  return as_type<bfloat16_t>(ushort(p_isnan(a) ? 0x7fc0u : r));
}
// the value after one rounding to bfloat16, still as float
P_FN float p_round_bf(float a) { return p_load(p_f2bf(a)); }
P_FN void p_store(P_DEV float* y, float a) { *y = p_out(a); }
P_FN void p_store(P_DEV bfloat16_t* y, float a) { *y = p_f2bf(a); }

// Over the 32 lanes; every lane gets the result. Order: pairs at distance 16, 8, 4, 2, 1.
P_FN float p_lanesum(float v) {
  v = p_add(v, simd_shuffle_xor(v, ushort(16)));
  v = p_add(v, simd_shuffle_xor(v, ushort(8)));
  v = p_add(v, simd_shuffle_xor(v, ushort(4)));
  v = p_add(v, simd_shuffle_xor(v, ushort(2)));
  return p_add(v, simd_shuffle_xor(v, ushort(1)));
}
P_FN float p_lanemax(float v) {
  v = p_max(v, simd_shuffle_xor(v, ushort(16)));
  v = p_max(v, simd_shuffle_xor(v, ushort(8)));
  v = p_max(v, simd_shuffle_xor(v, ushort(4)));
  v = p_max(v, simd_shuffle_xor(v, ushort(2)));
  return p_max(v, simd_shuffle_xor(v, ushort(1)));
}
P_FN uint p_maxu(uint a, uint b) { return a < b ? b : a; }
P_FN uint p_minu(uint a, uint b) { return b < a ? b : a; }
// maximum of bit patterns: of absolute values it is the largest magnitude, and NaN wins
P_FN uint p_lanemaxu(uint v) {
  v = p_maxu(v, simd_shuffle_xor(v, ushort(16)));
  v = p_maxu(v, simd_shuffle_xor(v, ushort(8)));
  v = p_maxu(v, simd_shuffle_xor(v, ushort(4)));
  v = p_maxu(v, simd_shuffle_xor(v, ushort(2)));
  return p_maxu(v, simd_shuffle_xor(v, ushort(1)));
}
P_FN uint p_laneor(uint v) {
  v = v | simd_shuffle_xor(v, ushort(16));
  v = v | simd_shuffle_xor(v, ushort(8));
  v = v | simd_shuffle_xor(v, ushort(4));
  v = v | simd_shuffle_xor(v, ushort(2));
  return v | simd_shuffle_xor(v, ushort(1));
}
// Sum of N threadgroup values (a power of two), balanced tree, neighbours first.
template <int N>  // values, a power of two
P_FN float p_treesum(const P_TG float* part) {
  float a[N];
  for (int i = 0; i < N; i++) a[i] = part[i];
  for (int d = 1; d < N; d = d * 2) {
    for (int i = 0; i < N; i += 2 * d) a[i] = p_add(a[i], a[i + d]);
  }
  return a[0];
}
template <int N>  // values, a power of two
P_FN float p_treemax(const P_TG float* part) {
  float a = part[0];
  for (int i = 1; i < N; i++) a = p_max(a, part[i]);
  return a;
}
