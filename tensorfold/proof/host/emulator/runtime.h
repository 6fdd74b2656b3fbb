// What the parts of the emulator share. The threads of a threadgroup are fibers of one OS thread; they change places at
// barriers and wherever lanes of a SIMD group exchange values. Knows no Python and no kernel.
#pragma once
#include <atomic>
#include <csetjmp>
#include <cstdint>
#include <cstring>
#include <vector>

namespace tf {
constexpr size_t kStack = 256 * 1024, kSlot = 64, kArena = 32768, kGuard = 1 << 20, kPage = 4096;
enum State { kReady, kInLanes, kInBarrier, kDone };
enum Id {  // what a thread knows about its place, in the order the generated entry reads them
  kInGrid = 0, kInGroup = 3, kGroup = 6, kGroupSize = 9, kGridSize = 12, kGroups = 15, kIndex = 18, kIds = 20
};

struct Fiber {
  void* stack_pointer;
  unsigned ids[kIds];
  State state;
  int site, lane, simd;
  unsigned exchanges;
};
struct Simd {  // 32 lanes; two slot sets, so that a fast lane cannot overwrite what a slow one still reads
  alignas(64) char slot[2][32][kSlot];
  uint32_t active[2];
  int lanes, arrived, done, site;
  uint32_t barriers;
};
struct Shared { int key; char* at; size_t bytes; };
typedef void (*Entry)(unsigned long, unsigned long);

struct Group {
  std::vector<Fiber> fibers;
  std::vector<Simd> simds;
  std::vector<int> order, place;  // schedule: order[k] is the k-th fiber to run, place its inverse
  std::vector<Shared> shared;
  char* arena;
  size_t used;
  char* stacks;
  size_t stack_bytes;
  void* scheduler;
  int current, count, done, waiting, barrier_site;
  uint32_t number, shared_epoch, device_epoch;
  bool track;
  Entry entry;
  unsigned long arguments;
  sigjmp_buf escape;
};
extern thread_local Group* group;

extern std::atomic<bool> failed;
void fail(const char* format, ...);  // keeps the first failure, with the thread it happened in
[[noreturn]] void leave();           // back to the scheduler, abandoning the group
void begin_group(Group& g);          // memory.cpp: forgets who touched threadgroup memory
void mark_initialised(const char* at, size_t bytes);
}  // namespace tf

extern "C" void tf_switch(void** from, void* to);
