// Buffers between guard pages, threadgroup memory, and who touched which byte: exact bounds, races, unwritten bytes.
// The hooks at the end are called by kernels compiled with clang's thread instrumentation. Knows no scheduling.
#include <algorithm>
#include <sys/mman.h>

#include "runtime.h"

namespace tf {
// One record a byte. A thread is (group, thread); within a group, a barrier of the right kind separates two accesses,
// within a SIMD group a simdgroup_barrier does; between groups nothing does.
struct Touch { uint32_t group = 0, thread = 0, epoch = 0, simd_barriers = 0; };
struct Byte { Touch write, read; bool shared_read = false, atomic = false; };
struct Buffer { char *map, *end, *at; size_t bytes; bool output; std::vector<Byte> touched; };

static std::vector<Buffer*> buffers;
static std::vector<Byte> arena_bytes(kArena);
static size_t arena_dirty;  // tracked launches have one worker, so one arena
static std::atomic<size_t> shared_peak;

void begin_group(Group& g) {
  if (!g.track) return;
  std::fill(arena_bytes.begin(), arena_bytes.begin() + arena_dirty, Byte());
  arena_dirty = 0;
}
void mark_initialised(const char* at, size_t bytes) {
  if (!group->track) return;
  for (size_t i = 0; i < bytes; i++) arena_bytes[at - group->arena + i].write.group = group->number;
}

static bool ordered(const Touch& t, const Touch& now, bool cross_group) {
  if (t.group == 0 || (t.group == now.group && t.thread == now.thread)) return true;
  if (t.group != now.group) return !cross_group;
  if (t.epoch != now.epoch) return true;
  return t.thread / 32 == now.thread / 32 && t.simd_barriers != now.simd_barriers;
}

static void touch(Byte& b, const Touch& now, bool write, bool atomic, const char* where, size_t offset,
                  bool cross_group) {
  bool was_atomic = b.atomic && atomic;
  if (!write && b.write.group == 0) { fail("reads %s that no thread has written (byte %zu)", where, offset); leave(); }
  if (!was_atomic && !ordered(b.write, now, cross_group)) {
    fail("race in %s: byte %zu is %s by thread %u and was written by thread %u with no barrier between", where, offset,
         write ? "written" : "read", now.thread, b.write.thread);
    leave();
  }
  bool unordered_read =
      b.read.group && (b.shared_read ? b.read.group != now.group ? cross_group : b.read.epoch == now.epoch
                                     : !ordered(b.read, now, cross_group));
  if (write && !was_atomic && unordered_read) {
    fail("race in %s: byte %zu is written by thread %u and was read by thread %u with no barrier between", where,
         offset, now.thread, b.read.thread);
    leave();
  }
  if (write) { b.write = now; b.atomic = atomic; return; }
  bool same_moment =
      b.read.group == now.group && b.read.epoch == now.epoch && b.read.simd_barriers == now.simd_barriers;
  b.shared_read =
      b.read.group && (b.read.group != now.group || (same_moment && (b.shared_read || b.read.thread != now.thread)));
  b.read = now;
}

static void access(const char* p, size_t n, bool write, bool atomic = false) {
  Group* g = group;
  if (!g || !g->track || (p >= g->stacks && p < g->stacks + g->stack_bytes)) return;
  auto& f = g->fibers[g->current];
  Touch now{g->number, f.ids[kIndex], g->shared_epoch, g->simds[f.simd].barriers};
  if (p >= g->arena && p < g->arena + kArena) {
    for (auto& s : g->shared) {
      if (p < s.at || p >= s.at + s.bytes) continue;
      if (p + n > s.at + s.bytes) break;
      for (size_t i = 0; i < n; i++)
        touch(arena_bytes[p - g->arena + i], now, write, atomic, "threadgroup memory", p - s.at + i, false);
      return;
    }
    fail("%s outside every threadgroup variable", write ? "write" : "read");
    leave();
  }
  for (Buffer* b : buffers) {
    if (p < b->map || p >= b->end) continue;
    if (p < b->at || p + n > b->at + b->bytes) {
      fail("%s of %zu bytes at offset %td of a buffer of %zu bytes", write ? "write" : "read", n, p - b->at, b->bytes);
      leave();
    }
    if (!b->output) return;
    now.epoch = g->device_epoch;
    for (size_t i = 0; i < n; i++)
      touch(b->touched[p - b->at + i], now, write, atomic, "an output", p - b->at + i, true);
    return;
  }
}
}  // namespace tf

using namespace tf;
static void note(unsigned long p, size_t n, bool write) { access((const char*)p, n, write, true); }
extern "C" {
// `offset` is the start address modulo 16; the buffer ends as near to a guard page as that allows
void* tf_buffer(unsigned long bytes, unsigned long offset, int output, int track) {
  size_t body = (bytes + 16 + kPage - 1) / kPage * kPage;
  char* map = (char*)mmap(nullptr, body + 2 * kGuard, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (map == MAP_FAILED) return nullptr;
  mprotect(map + kGuard, body, PROT_READ | PROT_WRITE);
  memset(map + kGuard, 0xa5, body);
  uintptr_t last = (uintptr_t)map + kGuard + body - bytes;
  char* at = (char*)(last - ((last - offset) & 15));
  buffers.push_back(new Buffer{map, map + body + 2 * kGuard, at, bytes, output != 0, {}});
  if (output && track) buffers.back()->touched.resize(bytes);
  return at;
}
// `front` and `back` bytes of `data` (poison where there is none, for an output) with `hole` bytes of address space
// between them: whatever touches those faults
void* tf_holed(const char* data, unsigned long front, unsigned long hole, unsigned long back, int output) {
  size_t bytes = front + hole + back, body = (bytes + 16 + kPage - 1) / kPage * kPage;
  char* map = (char*)mmap(nullptr, body + 2 * kGuard, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (map == MAP_FAILED) return nullptr;
  char* at = (char*)(((uintptr_t)map + kGuard + body - bytes) & ~uintptr_t(15));
  char* parts[2][2] = {{at, at + front}, {at + front + hole, at + bytes}};
  for (auto& part : parts) {
    char* page = (char*)((uintptr_t)part[0] & ~uintptr_t(kPage - 1));
    mprotect(page, part[1] - page, PROT_READ | PROT_WRITE);
    if (data) memcpy(part[0], data, part[1] - part[0]);
    else memset(part[0], 0xff, part[1] - part[0]);
    if (!output) mprotect(page, part[1] - page, PROT_READ);
    if (data) data += part[1] - part[0];
  }
  buffers.push_back(new Buffer{map, map + body + 2 * kGuard, at, bytes, output != 0, {}});
  return at;
}
static Buffer* find(void* at) {
  for (Buffer* b : buffers) if (b->at == at) return b;
  return nullptr;
}
void tf_read_only(void* at) {
  Buffer* b = find(at);
  mprotect(b->map + kGuard, b->end - b->map - 2 * kGuard, PROT_READ);
}
// bytes around the buffer that no longer hold what was put there
unsigned long tf_spilled(void* at) {
  Buffer* b = find(at);
  unsigned long count = 0;
  for (char* p = b->map + kGuard; p < b->end - kGuard; p++)
    count += (p < b->at || p >= b->at + b->bytes) && (unsigned char)*p != 0xa5;
  return count;
}
// bytes of an output that no thread wrote (known when tracked)
unsigned long tf_unwritten(void* at) {
  unsigned long count = 0;
  for (auto& byte : find(at)->touched) count += byte.write.group == 0;
  return count;
}
// the most threadgroup memory a group took since the last question
unsigned tf_shared_peak() { return unsigned(shared_peak.exchange(0)); }
void tf_release(void* at) {
  for (size_t i = 0; i < buffers.size(); i++) {
    if (buffers[i]->at != at) continue;
    munmap(buffers[i]->map, buffers[i]->end - buffers[i]->map);
    delete buffers[i];
    buffers.erase(buffers.begin() + i);
    return;
  }
}
char* tf_shared(int key, unsigned long bytes) {
  Group& g = *group;
  for (auto& s : g.shared) if (s.key == key) return s.at;
  size_t at = (g.used + 15) & ~size_t(15);
  if (at + bytes > kArena) { fail("threadgroup memory exceeds %zu bytes (%zu)", kArena, at + bytes); leave(); }
  g.shared.push_back({key, g.arena + at, bytes});
  g.used = at + bytes;
  if (g.used > shared_peak) shared_peak = g.used;
  if (g.track) arena_dirty = g.used;
  memset(g.arena + at, key < 0 ? 0 : 0xff, bytes);
  if (key < 0) mark_initialised(g.arena + at, bytes);
  return g.arena + at;
}
unsigned tf_load32(unsigned long p) { note(p, 4, false); return __atomic_load_n((unsigned*)p, __ATOMIC_SEQ_CST); }
unsigned long tf_load64(unsigned long p) {
  note(p, 8, false);
  return __atomic_load_n((unsigned long*)p, __ATOMIC_SEQ_CST);
}
bool tf_swap32(unsigned long p, unsigned expected, unsigned desired) {
  note(p, 4, true);
  return __atomic_compare_exchange_n((unsigned*)p, &expected, desired, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}
bool tf_swap64(unsigned long p, unsigned long expected, unsigned long desired) {
  note(p, 8, true);
  return __atomic_compare_exchange_n((unsigned long*)p, &expected, desired, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
#define TF_HOOKS(N)                                                                  \
  void __tsan_read##N(void* p) { access((const char*)p, N, false); }                 \
  void __tsan_write##N(void* p) { access((const char*)p, N, true); }                 \
  void __tsan_unaligned_read##N(void* p) { access((const char*)p, N, false); }       \
  void __tsan_unaligned_write##N(void* p) { access((const char*)p, N, true); }
TF_HOOKS(1) TF_HOOKS(2) TF_HOOKS(4) TF_HOOKS(8) TF_HOOKS(16)
void* __tsan_memcpy(void* to, const void* from, unsigned long n) {
  access((const char*)from, n, false);
  access((const char*)to, n, true);
  return memcpy(to, from, n);
}
void* __tsan_memmove(void* to, const void* from, unsigned long n) {
  access((const char*)from, n, false);
  access((const char*)to, n, true);
  return memmove(to, from, n);
}
void* __tsan_memset(void* to, int value, unsigned long n) {
  access((const char*)to, n, true);
  return memset(to, value, n);
}
}
