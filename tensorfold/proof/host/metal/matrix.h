// simdgroup_matrix: 8x8, two elements a lane, in the layout that public Metal code relies on. Knows no kernels.
#pragma once
#include "threads.h"

namespace metal {
inline int __matrix_row() { int l = tf_lane(); return ((l / 4) & 4) + (l / 2) % 4; }
inline int __matrix_col() { int l = tf_lane(); return ((l / 4) & 2) * 2 + (l % 2) * 2; }
inline int __matrix_lane(int r, int c) { return ((r & 4) | ((c & 4) >> 1)) * 4 + (r & 3) * 2 + ((c & 2) >> 1); }
template <class T, int C, int R> struct simdgroup_matrix {
  vec<T, 2> __e;
  simdgroup_matrix() = default;
  explicit simdgroup_matrix(T v) {
    __e = vec<T, 2>(0);
    for (int k = 0; k < 2; k++) if (__matrix_row() == __matrix_col() + k) __e[k] = v;
  }
  __private vec<T, 2>& thread_elements() __private { return __e; }
};
template <class T, int C, int R = C> inline simdgroup_matrix<T, C, R> make_filled_simdgroup_matrix(T v) {
  simdgroup_matrix<T, C, R> m;
  m.__e = vec<T, 2>(v);
  return m;
}
#define MSL_MATRIX_MEMORY(SPACE)                                                                                   \
  template <class T, class U>                                                                                      \
  inline void simdgroup_load(thread simdgroup_matrix<T, 8, 8>& m, const SPACE U* p, ulong ld = 8,                  \
                             ulong2 o = ulong2(0), bool tr = false, int site = __builtin_LINE()) {                 \
    static_assert(__is_same(T, U), "simdgroup_load: element types differ");                                        \
    tf_lanes_meet(site);                                                                                           \
    int r = __matrix_row(), c = __matrix_col();                                                                    \
    for (int k = 0; k < 2; k++) m.__e[k] = tr ? p[(o.y + c + k) * ld + o.x + r] : p[(o.y + r) * ld + o.x + c + k]; \
  }                                                                                                                \
  template <class T, class U>                                                                                      \
  inline void simdgroup_store(thread_cref const simdgroup_matrix<T, 8, 8>& m, SPACE U* p, ulong ld = 8,            \
                              ulong2 o = ulong2(0), bool tr = false, int site = __builtin_LINE()) {                \
    static_assert(__is_same(T, U), "simdgroup_store: element types differ");                                       \
    int r = __matrix_row(), c = __matrix_col();                                                                    \
    for (int k = 0; k < 2; k++) {                                                                                  \
      if (tr) p[(o.y + c + k) * ld + o.x + r] = m.__e[k];                                                          \
      else p[(o.y + r) * ld + o.x + c + k] = m.__e[k];                                                             \
    }                                                                                                              \
    tf_lanes_meet(site);                                                                                           \
  }
MSL_MATRIX_MEMORY(device)
MSL_MATRIX_MEMORY(threadgroup)
template <class D, class A, class B, class C>
inline void simdgroup_multiply_accumulate(thread simdgroup_matrix<D, 8, 8>& d,
                                          thread_cref const simdgroup_matrix<A, 8, 8>& a,
                                          thread_cref const simdgroup_matrix<B, 8, 8>& b,
                                          thread_cref const simdgroup_matrix<C, 8, 8>& c, int site = __builtin_LINE()) {
  struct Pair { A a[2]; B b[2]; };
  __global Pair* mine = (__global Pair*)tf_my_slot();
  for (int k = 0; k < 2; k++) { mine->a[k] = a.__e[k]; mine->b[k] = b.__e[k]; }
  tf_lanes_meet(site);
  int row = __matrix_row(), col = __matrix_col();
  for (int k = 0; k < 2; k++) {
    float acc = (float)c.__e[k];
    for (int i = 0; i < 8; i++) {
      float x = ((__global Pair*)tf_slot_of(__matrix_lane(row, i)))->a[i & 1];
      float y = ((__global Pair*)tf_slot_of(__matrix_lane(i, col + k)))->b[(col + k) & 1];
      acc = acc + x * y;
    }
    d.__e[k] = (D)acc;
  }
}
template <class D, class A, class B>
inline void simdgroup_multiply(thread simdgroup_matrix<D, 8, 8>& d, thread_cref const simdgroup_matrix<A, 8, 8>& a,
                               thread_cref const simdgroup_matrix<B, 8, 8>& b, int site = __builtin_LINE()) {
  simdgroup_matrix<D, 8, 8> zero = make_filled_simdgroup_matrix<D, 8, 8>((D)0);
  simdgroup_multiply_accumulate(d, a, b, zero, site);
}
}  // namespace metal
typedef metal::simdgroup_matrix<float, 8, 8> simdgroup_float8x8;
typedef metal::simdgroup_matrix<half, 8, 8> simdgroup_half8x8;
typedef metal::simdgroup_matrix<bfloat, 8, 8> simdgroup_bfloat8x8;
namespace metal { using ::simdgroup_float8x8; using ::simdgroup_half8x8; using ::simdgroup_bfloat8x8; }
