// Barriers, SIMD-group functions and atomics: calls into the emulator's runtime. Knows no scheduling.
#pragma once
#include "functions.h"

extern "C" threadgroup char* tf_shared(int key, ulong bytes);
extern "C" void tf_barrier(int site, int flags);
extern "C" void tf_simd_barrier(int site);
extern "C" void tf_lanes_meet(int site);        // all active lanes of the SIMD group arrive
extern "C" ulong tf_my_slot();                  // where this lane leaves its value before they meet
extern "C" ulong tf_slot_of(int lane);          // where another lane left it; 0 when that lane took no part
extern "C" int tf_lane();
extern "C" ulong tf_active();
extern "C" void tf_undefined_lane(int lane, int site);
extern "C" uint tf_load32(ulong p);
extern "C" ulong tf_load64(ulong p);
extern "C" bool tf_swap32(ulong p, uint expected, uint desired);
extern "C" bool tf_swap64(ulong p, ulong expected, ulong desired);

namespace metal {
enum class mem_flags {
  mem_none = 0, mem_device = 1, mem_threadgroup = 2, mem_texture = 4, mem_threadgroup_imageblock = 8
};
constexpr mem_flags operator|(mem_flags a, mem_flags b) { return (mem_flags)((int)a | (int)b); }
enum thread_scope { thread_scope_thread, thread_scope_simdgroup, thread_scope_threadgroup, thread_scope_device };
enum memory_order {
  memory_order_relaxed, memory_order_acquire, memory_order_release, memory_order_acq_rel, memory_order_seq_cst
};
inline void threadgroup_barrier(mem_flags f, int site = __builtin_LINE()) { tf_barrier(site, (int)f); }
inline void simdgroup_barrier(mem_flags f, int site = __builtin_LINE()) { tf_simd_barrier(site); }
inline void atomic_thread_fence(mem_flags f, memory_order o, thread_scope s = thread_scope_device) {}

template <class T> struct __exchangeable {
  static constexpr __constant bool v = __kind_v<typename __vt<T>::E> != 0 && sizeof(typename __vt<T>::E) <= 4;
};
template <class T> inline T __from_lane(int lane, T mine, int site) {
  ulong p = tf_slot_of(lane);
  if (!p) {
    tf_undefined_lane(lane, site);
    return mine;
  }
  return *(__global T*)p;
}
#define MSL_PUBLISH                                                  \
  typename enable_if<__exchangeable<T>::v, int>::type __allowed = 0; \
  *(__global T*)tf_my_slot() = v;                                    \
  tf_lanes_meet(site);
#define MSL_SHUFFLE(NAME, ARG, LANE)                                                     \
  template <class T> inline T NAME(T v, ushort ARG, int site = __builtin_LINE()) {       \
    MSL_PUBLISH                                                                          \
    int me = tf_lane();                                                                  \
    int lane = LANE;                                                                     \
    return __from_lane<T>(lane, v, site);                                                \
  }
MSL_SHUFFLE(simd_shuffle, l, l)
MSL_SHUFFLE(simd_broadcast, l, l)
MSL_SHUFFLE(simd_shuffle_xor, m, me ^ m)
MSL_SHUFFLE(quad_shuffle_xor, m, me ^ m)
MSL_SHUFFLE(simd_shuffle_down, d, me + d > 31 ? me : me + d)
MSL_SHUFFLE(simd_shuffle_up, d, me < d ? me : me - d)
MSL_SHUFFLE(simd_shuffle_rotate_down, d, (me + d) & 31)
MSL_SHUFFLE(simd_shuffle_rotate_up, d, (me - d) & 31)
template <class T> inline T simd_broadcast_first(T v, int site = __builtin_LINE()) {
  MSL_PUBLISH
  return __from_lane<T>(__builtin_ctzl(tf_active()), v, site);
}
// the order of Metal's own reductions is not stated anywhere: a tree, neighbours first, stands in for it here
#define MSL_REDUCE(NAME, EXPR)                                                   \
  template <class T> inline T NAME(T v, int site = __builtin_LINE()) {           \
    MSL_PUBLISH                                                                  \
    ulong active = tf_active();                                                  \
    T a[32];                                                                     \
    bool has[32];                                                                \
    for (int i = 0; i < 32; i++) {                                               \
      has[i] = (active >> i) & 1;                                                \
      if (has[i]) a[i] = *(__global T*)tf_slot_of(i);                            \
    }                                                                            \
    for (int o = 1; o < 32; o *= 2) {                                            \
      for (int i = 0; i + o < 32; i += 2 * o) {                                  \
        if (has[i] && has[i + o]) {                                              \
          T x = a[i], y = a[i + o];                                              \
          a[i] = EXPR;                                                           \
        } else if (has[i + o]) {                                                 \
          a[i] = a[i + o];                                                       \
          has[i] = true;                                                         \
        }                                                                        \
      }                                                                          \
    }                                                                            \
    return a[0];                                                                 \
  }
MSL_REDUCE(simd_sum, (T)(x + y)) MSL_REDUCE(simd_product, (T)(x * y)) MSL_REDUCE(simd_max, max(x, y))
MSL_REDUCE(simd_min, min(x, y)) MSL_REDUCE(simd_and, (T)(x & y)) MSL_REDUCE(simd_or, (T)(x | y))
MSL_REDUCE(simd_xor, (T)(x ^ y))
inline bool simd_any(bool b, int site = __builtin_LINE()) { int v = b; return simd_or(v, site) != 0; }
inline bool simd_all(bool b, int site = __builtin_LINE()) { int v = b; return simd_and(v, site) != 0; }
struct simd_vote {
  ulong v;
  explicit operator ulong() const { return v; }
  bool all() const { return v == 0xffffffffu; }
  bool any() const { return v != 0; }
};
inline simd_vote simd_ballot(bool b, int site = __builtin_LINE()) {
  uint m = b ? 1u << tf_lane() : 0u;
  simd_vote r;
  r.v = simd_or(m, site);
  return r;
}
inline bool simd_is_first() { return tf_lane() == __builtin_ctzl(tf_active()); }
#define MSL_PREFIX(NAME, START, LAST, OP)                                        \
  template <class T> inline T NAME(T v, int site = __builtin_LINE()) {           \
    MSL_PUBLISH                                                                  \
    T s = START;                                                                 \
    for (int i = 0; i LAST tf_lane(); i++) s = s OP __from_lane<T>(i, v, site);  \
    return s;                                                                    \
  }
MSL_PREFIX(simd_prefix_inclusive_sum, 0, <=, +) MSL_PREFIX(simd_prefix_exclusive_sum, 0, <, +)
MSL_PREFIX(simd_prefix_inclusive_product, 1, <=, *) MSL_PREFIX(simd_prefix_exclusive_product, 1, <, *)
template <class T> inline T quad_sum(T v, int site = __builtin_LINE()) {
  v = v + quad_shuffle_xor(v, 1, site);
  return v + quad_shuffle_xor(v, 2, site);
}

template <class T> struct atomic { T __v; };
template <class T> struct __id { typedef T type; };
template <class T> inline T __atomic_read(ulong p) {
  if constexpr (sizeof(T) == 8) return as_type<T>((ulong)tf_load64(p));
  else if constexpr (sizeof(T) == 4) return as_type<T>(tf_load32(p));
  else return (T)tf_load32(p);
}
template <class T> inline bool __atomic_swap(ulong p, T e, T n) {
  if constexpr (sizeof(T) == 8) return tf_swap64(p, as_type<ulong>(e), as_type<ulong>(n));
  else return tf_swap32(p, as_type<uint>(e), as_type<uint>(n));
}
#define MSL_ATOMIC_UPDATE(SPACE, NAME, EXPR)                                                                       \
  template <class T> inline T NAME(volatile SPACE atomic<T>* p, typename __id<T>::type x, memory_order o) {        \
    T cur, next;                                                                                                   \
    do {                                                                                                           \
      cur = __atomic_read<T>((ulong)&p->__v);                                                                      \
      next = EXPR;                                                                                                 \
    } while (!__atomic_swap<T>((ulong)&p->__v, cur, next));                                                        \
    return cur;                                                                                                    \
  }
#define MSL_ATOMICS(SPACE)                                                                                         \
  template <class T> inline T atomic_load_explicit(const volatile SPACE atomic<T>* p, memory_order o) {            \
    return __atomic_read<T>((ulong)&p->__v);                                                                       \
  }                                                                                                                \
  MSL_ATOMIC_UPDATE(SPACE, atomic_exchange_explicit, x)                                                            \
  MSL_ATOMIC_UPDATE(SPACE, atomic_fetch_add_explicit, (T)(cur + x))                                                \
  MSL_ATOMIC_UPDATE(SPACE, atomic_fetch_sub_explicit, (T)(cur - x))                                                \
  MSL_ATOMIC_UPDATE(SPACE, atomic_fetch_and_explicit, (T)(cur & x))                                                \
  MSL_ATOMIC_UPDATE(SPACE, atomic_fetch_or_explicit, (T)(cur | x))                                                 \
  MSL_ATOMIC_UPDATE(SPACE, atomic_fetch_xor_explicit, (T)(cur ^ x))                                                \
  MSL_ATOMIC_UPDATE(SPACE, atomic_fetch_min_explicit, (x < cur ? x : cur))                                         \
  MSL_ATOMIC_UPDATE(SPACE, atomic_fetch_max_explicit, (cur < x ? x : cur))                                         \
  template <class T>                                                                                               \
  inline void atomic_store_explicit(volatile SPACE atomic<T>* p, typename __id<T>::type x, memory_order o) {       \
    atomic_exchange_explicit(p, x, o);                                                                             \
  }                                                                                                                \
  template <class T>                                                                                               \
  inline bool atomic_compare_exchange_weak_explicit(volatile SPACE atomic<T>* p, thread T* e,                      \
                                                    typename __id<T>::type x, memory_order o, memory_order f) {    \
    if (__atomic_swap<T>((ulong)&p->__v, *e, x)) return true;                                                      \
    *e = __atomic_read<T>((ulong)&p->__v);                                                                         \
    return false;                                                                                                  \
  }
MSL_ATOMICS(device)
MSL_ATOMICS(threadgroup)
}  // namespace metal
