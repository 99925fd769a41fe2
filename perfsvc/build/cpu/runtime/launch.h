// Runs the blocks of a launch, and reports blocks that fail.
#pragma once

#include <stdarg.h>

namespace perfsvc {

constexpr unsigned abi = 1;

// The memory of `extern __shared__` arrays: as much as present GPUs allow a block.
alignas(256) static thread_local char shared_memory[227 << 10];

// A __global__ function as the device sees it. perfsvc/device/cpu.py has the same layout.
struct Entry {
  unsigned abi;
  unsigned arg_count;
  const unsigned* arg_bytes;
  void (*call)(void** args);
};

template <unsigned... I> struct Indices {};
template <unsigned N, unsigned... I> struct CountTo : CountTo<N - 1, N - 1, I...> {};
template <unsigned... I> struct CountTo<0, I...> { typedef Indices<I...> type; };

template <auto kernel> struct Caller;
template <class... A, void (*kernel)(A...)> struct Caller<kernel> {
  static constexpr unsigned arg_bytes[sizeof...(A) + 1] = {sizeof(A)..., 0};
  template <unsigned... I> static void unpack(void** args, Indices<I...>) {
    kernel(*static_cast<A*>(args[I])...);
  }
  static void call(void** args) { unpack(args, typename CountTo<sizeof...(A)>::type()); }
  static constexpr Entry entry = {abi, sizeof...(A), arg_bytes, call};
};

inline void run_current() { self->entry->call(self->launch->args); }

// Ends the launch; only the first failure of all its workers is reported.
[[noreturn]] inline void fail(const char* format, ...) {
  Launch& launch = *self->launch;
  if (__atomic_exchange_n(&launch.failed, 1, __ATOMIC_SEQ_CST) == 0) {
    int used = snprintf(launch.message, sizeof launch.message, "kernel %s, block (%u,%u,%u): ", launch.name, blockIdx.x,
                        blockIdx.y, blockIdx.z);
    va_list values;
    va_start(values, format);
    vsnprintf(launch.message + used, sizeof launch.message - used, format, values);
    va_end(values);
  }
  void* abandoned;
  perfsvc_switch(&abandoned, self->home);
  __builtin_unreachable();
}

// Gives the threads of a warp that wait at the same __activemask() their common mask: no other thread can join them.
inline bool settle_activemasks() {
  Block& b = *self;
  bool settled = false;
  for (unsigned first = 0; first < b.size; ++first) {
    if (b.states[first] != State::at_activemask) continue;
    unsigned base = first - first % warp_lanes, mask = 0;
    for (unsigned lane = 0; lane < warp_lanes && base + lane < b.size; ++lane)
      if (b.states[base + lane] == State::at_activemask && b.waits[base + lane].site == b.waits[first].site)
        mask |= 1u << lane;
    for (unsigned lane = 0; lane < warp_lanes; ++lane)
      if (mask >> lane & 1) {
        b.lanes[base + lane].result = mask;
        push_ready(base + lane);
      }
    settled = true;
  }
  return settled;
}

// Returns how many of the threads that `first` waits for have arrived, for the message.
inline unsigned count_met(unsigned first) {
  Block& b = *self;
  unsigned met = 0;
  for (unsigned thread = 0; thread < b.size; ++thread) {
    if (b.states[thread] != b.states[first] || !same_text(b.waits[thread].what, b.waits[first].what)) continue;
    if (b.states[first] == State::at_warp)
      met += thread / warp_lanes == first / warp_lanes && b.waits[thread].mask == b.waits[first].mask;
    else
      met += b.waits[thread].site == b.waits[first].site;
  }
  return met;
}

[[noreturn]] inline void report_deadlock() {
  Block& b = *self;
  unsigned first = 0;
  while (first < b.size && b.states[first] != State::at_warp) ++first;
  bool warp = first < b.size;
  if (!warp)
    for (first = 0; b.states[first] != State::at_barrier;) ++first;
  const Wait& wait = b.waits[first];
  unsigned base = warp ? first - first % warp_lanes : 0, end = warp ? base + warp_lanes : b.size;
  unsigned expected = 0, exited = 0, met = count_met(first);
  for (unsigned thread = base; thread < end; ++thread)
    if (!warp || wait.mask >> (thread - base) & 1) {
      expected++;
      exited += b.states[thread] == State::exited;
    }
  char group[64] = "threads";
  if (warp) snprintf(group, sizeof group, "lanes that mask 0x%08x names in warp %u", wait.mask, first / warp_lanes);
  fail("%s at %s:%d was reached by %u of %u %s; %u have exited, %u wait elsewhere", wait.what, wait.site.file,
       wait.site.line, met, expected, group, exited, expected - met - exited);
}

// Called when no thread can run and some have not ended.
inline void settle() {
  if (!settle_activemasks()) report_deadlock();
}

inline void run_block(unsigned long long number) {
  Block& b = *self;
  blockIdx = {static_cast<unsigned>(number % gridDim.x), static_cast<unsigned>(number / gridDim.x % gridDim.y),
              static_cast<unsigned>(number / gridDim.x / gridDim.y)};
  b.started = b.exited = b.ready_head = b.ready_count = b.arrived = b.arrived_true = 0;
  b.next_index = {0, 0, 0};
  memset(b.states, static_cast<int>(State::unstarted), b.size);
  b.running = take_carrier();
  start_next();
  perfsvc_switch(&b.home, b.running->sp);
}

}  // namespace perfsvc

// Runs blocks of a launch until none is left; each worker has an arena of its own, zero-filled before its first use.
// Blocks are taken in ascending order, so that a block may wait for its predecessors' results.
extern "C" __attribute__((visibility("default"))) void perfsvc_run(const perfsvc::Entry* entry, perfsvc::Launch* launch,
                                                                   void* arena) {
  perfsvc::Block& b = *static_cast<perfsvc::Block*>(arena);
  perfsvc::self = &b;
  b.entry = entry;
  b.launch = launch;
  b.stacks = static_cast<char*>(arena) + perfsvc::block_bytes;
  b.carrier_count = b.idle_count = 0;
  b.size = launch->block[0] * launch->block[1] * launch->block[2];
  gridDim = dim3(launch->grid[0], launch->grid[1], launch->grid[2]);
  blockDim = dim3(launch->block[0], launch->block[1], launch->block[2]);
  for (;;) {
    unsigned long long first = __atomic_fetch_add(&launch->next_block, launch->chunk, __ATOMIC_SEQ_CST);
    for (unsigned long long block = first; block < first + launch->chunk; ++block) {
      if (block >= launch->blocks || __atomic_load_n(&launch->failed, __ATOMIC_SEQ_CST)) return;
      perfsvc::run_block(block);
    }
  }
}
