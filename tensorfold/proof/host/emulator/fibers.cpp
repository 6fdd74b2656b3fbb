// Fibers, barriers and the exchange of lanes. Knows no memory but each fiber's stack and the lanes' slots.
#include <cstdarg>
#include <cstdio>
#include <mutex>
#include <string>

#include "runtime.h"

// saves the callee-saved registers and the stack pointer of one fiber, takes those of another
asm(R"(
.text
.globl tf_switch
.type tf_switch,@function
tf_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
)");

namespace tf {
thread_local Group* group;
std::atomic<bool> failed;
static std::mutex failure_lock;
static std::string failure;

void fail(const char* format, ...) {
  char what[400], where[120] = "";
  va_list list;
  va_start(list, format);
  vsnprintf(what, sizeof what, format, list);
  va_end(list);
  if (group && group->current >= 0) {
    auto& f = group->fibers[group->current];
    snprintf(where, sizeof where, " [threadgroup %u,%u,%u thread %u]", f.ids[kGroup], f.ids[kGroup + 1],
             f.ids[kGroup + 2], f.ids[kIndex]);
  }
  std::lock_guard<std::mutex> hold(failure_lock);
  if (failure.empty()) failure = std::string(what) + where;
  failed = true;
}

void leave() {
  void* ignored;
  tf_switch(&ignored, group->scheduler);
  __builtin_unreachable();
}

// the next fiber of the schedule that can run; none left and not all done is a deadlock
static void run_next() {
  Group& g = *group;
  int here = g.place[g.current];
  for (int k = 1; k <= g.count; k++) {
    int next = g.order[(here + k) % g.count];
    if (g.fibers[next].state != kReady) continue;
    if (next == g.current) return;
    int before = g.current;
    g.current = next;
    tf_switch(&g.fibers[before].stack_pointer, g.fibers[next].stack_pointer);
    return;
  }
  if (g.done == g.count) leave();
  int lanes = -1, barrier = -1;
  for (auto& f : g.fibers) {
    if (f.state == kInLanes) lanes = f.site;
    if (f.state == kInBarrier) barrier = f.site;
  }
  fail(
      "deadlock: some threads wait in a SIMD-group operation at line %d while others wait at the barrier at line %d or "
      "have left",
      lanes, barrier);
  leave();
}

static void release_lanes(Simd& s, int simd) {
  Group& g = *group;
  uint32_t mask = 0;
  int parity = 0;
  for (int l = 0; l < s.lanes; l++) {
    auto& f = g.fibers[simd * 32 + l];
    if (f.state != kInLanes) continue;
    mask |= 1u << l;
    parity = f.exchanges & 1;
    f.state = kReady;
  }
  s.active[parity] = mask;
  s.arrived = 0;
}

static void fiber_main() {
  Group& g = *group;
  g.entry(g.arguments, (unsigned long)g.fibers[g.current].ids);
  auto& f = g.fibers[g.current];
  f.state = kDone;
  g.done++;
  auto& s = g.simds[f.simd];
  s.done++;
  if (s.arrived && s.arrived == s.lanes - s.done) release_lanes(s, f.simd);
  if (g.waiting && g.waiting == g.count - g.done) {
    fail("a thread returned while the others wait at threadgroup_barrier, line %d", g.barrier_site);
    leave();
  }
  run_next();
  leave();
}

void start_fiber(Group& g, int index) {
  void** top = (void**)(g.stacks + (index + 1) * kStack - 64);
  *--top = nullptr;
  *--top = (void*)fiber_main;
  for (int k = 0; k < 6; k++) *--top = nullptr;
  g.fibers[index].stack_pointer = top;
}
void clear_failure() { failure.clear(); failed = false; }
}  // namespace tf

using namespace tf;
extern "C" {
const char* tf_error() { return failure.c_str(); }

void tf_barrier(int site, int flags) {
  Group& g = *group;
  auto& f = g.fibers[g.current];
  if (g.waiting == 0) g.barrier_site = site;
  if (g.barrier_site != site) {
    fail("threads wait at different barriers: lines %d and %d", g.barrier_site, site);
    leave();
  }
  if (g.done) { fail("threadgroup_barrier at line %d reached after %d threads had returned", site, g.done); leave(); }
  f.state = kInBarrier;
  f.site = site;
  if (++g.waiting < g.count) { run_next(); return; }
  for (auto& other : g.fibers) other.state = kReady;
  g.waiting = 0;
  if (flags & 2) g.shared_epoch++;
  if (flags & 1) g.device_epoch++;
}
void tf_lanes_meet(int site) {
  Group& g = *group;
  auto& f = g.fibers[g.current];
  auto& s = g.simds[f.simd];
  if (s.arrived == 0) s.site = site;
  if (s.site != site) {
    fail("lanes of one SIMD-group stand at different operations: lines %d and %d", s.site, site);
    leave();
  }
  f.state = kInLanes;
  f.site = site;
  if (++s.arrived == s.lanes - s.done) release_lanes(s, f.simd);
  else run_next();
  g.fibers[g.current].exchanges++;
}
void tf_simd_barrier(int site) {
  Simd& s = group->simds[group->fibers[group->current].simd];
  uint32_t before = s.barriers;
  tf_lanes_meet(site);
  if (s.barriers == before) s.barriers++;
}
unsigned long tf_my_slot() {
  auto& f = group->fibers[group->current];
  return (unsigned long)group->simds[f.simd].slot[f.exchanges & 1][f.lane];
}
unsigned long tf_slot_of(int lane) {
  auto& f = group->fibers[group->current];
  auto& s = group->simds[f.simd];
  int parity = (f.exchanges - 1) & 1;
  return lane < 0 || lane > 31 || !(s.active[parity] >> lane & 1) ? 0 : (unsigned long)s.slot[parity][lane];
}
int tf_lane() { return group->fibers[group->current].lane; }
unsigned long tf_active() {
  auto& f = group->fibers[group->current];
  return group->simds[f.simd].active[(f.exchanges - 1) & 1];
}
void tf_undefined_lane(int lane, int site) {
  fail("SIMD operation at line %d reads lane %d, which is inactive or out of range: undefined in Metal", site, lane);
  leave();
}
}
