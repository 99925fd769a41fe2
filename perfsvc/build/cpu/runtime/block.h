// Runs one block on one thread of the operating system: its CUDA threads take turns on stacks of their own.
//
// A carrier is a stack that runs CUDA threads one after the other. When a thread has to wait, another carrier continues
// with the next thread. A kernel that never waits is a plain loop on one carrier and never switches.
#pragma once

namespace perfsvc {

constexpr unsigned max_threads = 1024;
constexpr unsigned warp_lanes = 32;

inline bool same_text(const char* a, const char* b) { return a == b || strcmp(a, b) == 0; }

// A line of the user's source.
struct Site {
  const char* file;
  int line;
  static constexpr Site here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) { return {file, line}; }
  bool operator==(const Site& other) const { return line == other.line && same_text(file, other.file); }
};

struct Entry;

// One launch, shared by all its workers. perfsvc/device/cpu.py has the same layout.
struct Launch {
  const char* name;
  void** args;
  unsigned long long blocks;
  unsigned long long next_block;
  unsigned long long chunk;
  unsigned grid[3];
  unsigned block[3];
  int failed;
  char message[1024];
};

enum class State : unsigned char { unstarted, running, ready, at_barrier, at_warp, at_activemask, exited };

// The operation that a thread waits for.
struct Wait {
  const char* what;
  Site site;
  unsigned mask;
};

// A lane's arguments of a warp operation, and its result.
struct Lane {
  unsigned long long value;
  unsigned source;
  unsigned long long result;
};

struct Carrier {
  void* sp;
};

struct Block {
  unsigned guarded;  // stacks of this arena that have their guard page; outlives launches
  const Entry* entry;
  Launch* launch;
  char* stacks;
  void* home;  // the worker's own stack
  Carrier* running;
  unsigned carrier_count, idle_count;
  unsigned size, started, exited, current;
  uint3 next_index;
  unsigned ready_head, ready_count;
  unsigned arrived, arrived_true, released_true;
  Site barrier_site;
  State states[max_threads];
  unsigned short ready[max_threads];
  Carrier* carrier_of[max_threads];
  Carrier* idle[max_threads];
  Carrier carriers[max_threads];
  Wait waits[max_threads];
  Lane lanes[max_threads];
};

constexpr size_t block_bytes = 256 << 10;
static_assert(sizeof(Block) <= block_bytes, "the arena leaves this much for the block before its stacks");

static __thread Block* self;

void run_current();
[[noreturn]] void fail(const char* format, ...) __attribute__((format(printf, 1, 2)));
void settle();

inline void go(Carrier* to) {
  Carrier* from = self->running;
  self->running = to;
  perfsvc_switch(&from->sp, to->sp);
}

inline void push_ready(unsigned thread) {
  self->states[thread] = State::ready;
  self->ready[(self->ready_head + self->ready_count++) % max_threads] = static_cast<unsigned short>(thread);
}

inline unsigned pop_ready() {
  unsigned thread = self->ready[self->ready_head];
  self->ready_head = (self->ready_head + 1) % max_threads;
  self->ready_count--;
  return thread;
}

// Makes the next unstarted thread the current one.
inline void start_next() {
  Block& b = *self;
  b.current = b.started++;
  b.states[b.current] = State::running;
  threadIdx = b.next_index;
  if (++b.next_index.x < blockDim.x) return;
  b.next_index.x = 0;
  if (++b.next_index.y < blockDim.y) return;
  b.next_index.y = 0;
  ++b.next_index.z;
}

// Called when the current thread has ended; returns when this carrier has another thread to run.
inline void next_thread() {
  Block& b = *self;
  for (;;) {
    if (b.ready_count != 0) {
      b.idle[b.idle_count++] = b.running;
      return go(b.carrier_of[pop_ready()]);
    }
    if (b.started < b.size) return start_next();
    if (b.exited == b.size) {
      b.idle[b.idle_count++] = b.running;
      perfsvc_switch(&b.running->sp, b.home);
      return;
    }
    settle();
  }
}

[[noreturn]] inline void carrier_main() {
  for (;;) {
    run_current();
    self->states[self->current] = State::exited;
    self->exited++;
    next_thread();
  }
}

inline Carrier* take_carrier() {
  Block& b = *self;
  if (b.idle_count != 0) return b.idle[--b.idle_count];
  unsigned index = b.carrier_count++;
  char* base = b.stacks + index * stack_bytes;
  if (index >= b.guarded) {
    guard_stack(base);
    b.guarded = index + 1;
  }
  b.carriers[index].sp = new_stack(base, index, carrier_main);
  return &b.carriers[index];
}

// Makes the current thread wait; returns when it is ready and its turn has come.
__attribute__((noinline)) inline void park() {
  Block& b = *self;
  unsigned thread = b.current;
  uint3 index = threadIdx;
  b.carrier_of[thread] = b.running;
  while (b.ready_count == 0 && b.started == b.size) settle();
  if (b.ready_count != 0) {
    unsigned other = pop_ready();
    if (other != thread) go(b.carrier_of[other]);
  } else {
    Carrier* carrier = take_carrier();
    start_next();
    go(carrier);
  }
  b.current = thread;
  b.states[thread] = State::running;
  threadIdx = index;
}

// Returns how many threads of the block brought a true predicate, when all of them have arrived.
inline unsigned barrier(const char* what, Site site, bool predicate) {
  Block& b = *self;
  if (b.arrived == 0) b.barrier_site = site;
  b.states[b.current] = State::at_barrier;
  b.waits[b.current] = {what, site, 0};
  if (site == b.barrier_site) {
    b.arrived++;
    b.arrived_true += predicate;
  }
  if (b.arrived < b.size) {
    park();
    return b.released_true;
  }
  b.states[b.current] = State::running;
  b.released_true = b.arrived_true;
  b.arrived = b.arrived_true = 0;
  for (unsigned thread = 0; thread < b.size; ++thread)
    if (thread != b.current) push_ready(thread);
  return b.released_true;
}

}  // namespace perfsvc

inline void __syncthreads(perfsvc::Site site = perfsvc::Site::here()) {
  perfsvc::barrier("__syncthreads()", site, false);
}
inline int __syncthreads_count(int predicate, perfsvc::Site site = perfsvc::Site::here()) {
  return static_cast<int>(perfsvc::barrier("__syncthreads_count()", site, predicate != 0));
}
inline int __syncthreads_and(int predicate, perfsvc::Site site = perfsvc::Site::here()) {
  return perfsvc::barrier("__syncthreads_and()", site, predicate == 0) == 0;
}
inline int __syncthreads_or(int predicate, perfsvc::Site site = perfsvc::Site::here()) {
  return perfsvc::barrier("__syncthreads_or()", site, predicate != 0) != 0;
}

inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_block() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
