// One launch: threadgroups over worker threads, threads of a group in a chosen schedule, flushing of subnormals on or
// off. Knows no memory layout.
#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <mutex>
#include <sys/mman.h>
#include <thread>
#include <xmmintrin.h>

#include "runtime.h"

namespace tf {
void start_fiber(Group& g, int index);
void clear_failure();

static void on_fault(int, siginfo_t*, void*) {
  if (group) {
    fail("memory access outside the buffers (or write to a const input)");
    siglongjmp(group->escape, 1);
  }
  signal(SIGSEGV, SIG_DFL);
}

struct Plan {
  unsigned grid[3], size[3], groups[3];
  unsigned schedule;
  bool flush, track;
  Entry entry;
  unsigned long arguments;
  std::vector<long> sequence;
};

// schedule 0: as it is; 1: reversed; others: shuffled by that number
template <class T> static void schedule_order(std::vector<T>& order, unsigned schedule, unsigned salt) {
  size_t n = order.size();
  if (schedule == 1) std::reverse(order.begin(), order.end());
  uint64_t r = schedule * 2654435761u + salt;
  if (schedule > 1) for (size_t i = n; i-- > 1;) {
    r = r * 6364136223846793005u + 1442695040888963407u;
    std::swap(order[i], order[(r >> 33) % (i + 1)]);
  }
}

static void prepare(Group& g, const Plan& plan, long index) {
  unsigned at[3] = {unsigned(index % plan.groups[0]), unsigned(index / plan.groups[0] % plan.groups[1]),
                    unsigned(index / plan.groups[0] / plan.groups[1])};
  unsigned size[3];
  for (int i = 0; i < 3; i++) size[i] = std::min(plan.size[i], plan.grid[i] - at[i] * plan.size[i]);
  int n = g.count = size[0] * size[1] * size[2];
  g.fibers.resize(n);
  g.simds.resize((n + 31) / 32);
  g.order.resize(n);
  g.place.resize(n);
  g.done = g.waiting = 0;
  g.shared.clear();
  g.used = 0;
  g.number = unsigned(index) + 1;
  g.shared_epoch = g.device_epoch = 0;
  for (size_t i = 0; i < g.simds.size(); i++) {
    auto& s = g.simds[i];
    s.lanes = std::min(32, n - int(i) * 32);
    s.arrived = s.done = 0;
    s.active[0] = s.active[1] = s.barriers = 0;
  }
  for (int i = 0; i < n; i++) g.order[i] = i;
  schedule_order(g.order, plan.schedule, unsigned(index) + 1);
  for (int i = 0; i < n; i++) g.place[g.order[i]] = i;
  for (int i = 0; i < n; i++) {
    auto& f = g.fibers[i];
    unsigned in[3] = {i % size[0], i / size[0] % size[1], i / size[0] / size[1]};
    for (int k = 0; k < 3; k++) {
      f.ids[kInGrid + k] = at[k] * plan.size[k] + in[k];
      f.ids[kInGroup + k] = in[k];
      f.ids[kGroup + k] = at[k];
      f.ids[kGroupSize + k] = size[k];
      f.ids[kGridSize + k] = plan.grid[k];
      f.ids[kGroups + k] = plan.groups[k];
    }
    f.ids[kIndex] = i;
    f.state = kReady;
    f.lane = i & 31;
    f.simd = i >> 5;
    f.exchanges = 0;
    start_fiber(g, i);
  }
  begin_group(g);
}

// stacks are kept between launches: fresh pages cost more than most kernels
struct Stacks { char* at = nullptr; size_t bytes = 0; };
static std::mutex stacks_lock;
static std::vector<Stacks> spare_stacks;

static Stacks take_stacks(size_t bytes) {
  Stacks found;
  std::lock_guard<std::mutex> hold(stacks_lock);
  if (!spare_stacks.empty()) {
    found = spare_stacks.back();
    spare_stacks.pop_back();
  }
  if (found.bytes >= bytes) return found;
  if (found.at) munmap(found.at, found.bytes);
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return {(char*)at, bytes};
}
static void return_stacks(Stacks stacks) {
  std::lock_guard<std::mutex> hold(stacks_lock);
  spare_stacks.push_back(stacks);
}

static void work(const Plan& plan, std::atomic<long>& next) {
  Group g;
  group = &g;
  g.entry = plan.entry;
  g.arguments = plan.arguments;
  g.track = plan.track;
  g.current = -1;
  g.arena = (char*)aligned_alloc(64, kArena + 64);
  Stacks stacks = take_stacks(size_t(plan.size[0]) * plan.size[1] * plan.size[2] * kStack);
  g.stacks = stacks.at;
  g.stack_bytes = stacks.bytes;
  stack_t alternate{};
  alternate.ss_size = 65536;
  alternate.ss_sp = malloc(alternate.ss_size);
  sigaltstack(&alternate, nullptr);
  unsigned control = _mm_getcsr();
  _mm_setcsr(plan.flush ? control | 0x8040 : control & ~0x8040u);  // flush to zero and denormals are zero
  for (long k; (k = next++) < long(plan.sequence.size()) && !failed;) {
    prepare(g, plan, plan.sequence[k]);
    g.current = g.order[0];
    if (sigsetjmp(g.escape, 1) == 0) tf_switch(&g.scheduler, g.fibers[g.current].stack_pointer);
  }
  _mm_setcsr(control);
  return_stacks(stacks);
  free(g.arena);
  void* stack = alternate.ss_sp;
  alternate.ss_flags = SS_DISABLE;
  sigaltstack(&alternate, nullptr);
  free(stack);
  group = nullptr;
}
}  // namespace tf

// returns 1 when something failed: tf_error() says what. `kept`, unless null: an axis and how many of the threadgroups
// along it run, from the first and up to the last
extern "C" int tf_launch(void* entry, void* arguments, const unsigned* grid, const unsigned* size, int workers,
                         unsigned schedule, int flush, int track, const unsigned* kept) {
  using namespace tf;
  clear_failure();
  Plan plan;
  std::vector<long> at[3];
  for (int i = 0; i < 3; i++) {
    plan.grid[i] = grid[i];
    plan.size[i] = size[i];
    plan.groups[i] = (grid[i] + size[i] - 1) / size[i];
    bool cut = kept && int(kept[0]) == i;
    long all = plan.groups[i], front = cut ? kept[1] : all, back = cut ? kept[2] : 0;
    for (long k = 0; k < front; k++) at[i].push_back(k);
    for (long k = all - back; k < all; k++) at[i].push_back(k);
  }
  plan.schedule = schedule;
  plan.flush = flush;
  plan.track = track;
  plan.entry = (Entry)entry;
  plan.arguments = (unsigned long)arguments;
  for (long z : at[2])
    for (long y : at[1])
      for (long x : at[0]) plan.sequence.push_back(x + (y + z * plan.groups[1]) * plan.groups[0]);
  schedule_order(plan.sequence, schedule, 7);
  std::atomic<long> next{0};
  struct sigaction action{}, before{};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  sigaction(SIGSEGV, &action, &before);
  std::vector<std::thread> threads;
  for (int i = 0; i < std::max(1, std::min(workers, int(std::min(plan.sequence.size(), size_t(64))))); i++)
    threads.emplace_back([&] { work(plan, next); });
  for (auto& t : threads) t.join();
  sigaction(SIGSEGV, &before, nullptr);
  return failed ? 1 : 0;
}
