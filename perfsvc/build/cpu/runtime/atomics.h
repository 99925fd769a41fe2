// CUDA's atomics: atomic between the threads of the operating system that run blocks, and relaxed as on a GPU.
#pragma once

namespace perfsvc {

// Replaces *address by change(*address) and returns the old value, for operations without a processor instruction.
template <class T, class Change> inline T atomic_change(T* address, Change change) {
  T old, replacement;
  __atomic_load(address, &old, __ATOMIC_RELAXED);
  do replacement = change(old);
  while (!__atomic_compare_exchange(address, &old, &replacement, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
  return old;
}

}  // namespace perfsvc

// Each function in the three scopes of CUDA, which are equal here.
#define PERFSVC_ATOMIC(name, T, ...)                                            \
  inline T name(T* address, T value) { __VA_ARGS__ }                            \
  inline T name##_block(T* address, T value) { return name(address, value); }   \
  inline T name##_system(T* address, T value) { return name(address, value); }
#define PERFSVC_ATOMIC_FETCH(name, T, fetch) PERFSVC_ATOMIC(name, T, return fetch(address, value, __ATOMIC_RELAXED);)
#define PERFSVC_ATOMIC_CHANGE(name, T, expression) \
  PERFSVC_ATOMIC(name, T, return perfsvc::atomic_change(address, [value](T old) -> T { return expression; });)
#define PERFSVC_ATOMIC_CAS(T)                                                                                \
  inline T atomicCAS(T* address, T expected, T value) {                                                      \
    __atomic_compare_exchange_n(address, &expected, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);       \
    return expected;                                                                                         \
  }                                                                                                          \
  inline T atomicCAS_block(T* address, T expected, T value) { return atomicCAS(address, expected, value); }  \
  inline T atomicCAS_system(T* address, T expected, T value) { return atomicCAS(address, expected, value); }
#define PERFSVC_ATOMIC_INTEGER(T)                              \
  PERFSVC_ATOMIC_FETCH(atomicExch, T, __atomic_exchange_n)     \
  PERFSVC_ATOMIC_FETCH(atomicAnd, T, __atomic_fetch_and)       \
  PERFSVC_ATOMIC_FETCH(atomicOr, T, __atomic_fetch_or)         \
  PERFSVC_ATOMIC_FETCH(atomicXor, T, __atomic_fetch_xor)       \
  PERFSVC_ATOMIC_CHANGE(atomicMin, T, value < old ? value : old) \
  PERFSVC_ATOMIC_CHANGE(atomicMax, T, value > old ? value : old)

PERFSVC_ATOMIC_INTEGER(int)
PERFSVC_ATOMIC_INTEGER(unsigned int)
PERFSVC_ATOMIC_INTEGER(unsigned long long)
PERFSVC_ATOMIC_CHANGE(atomicMin, long long, value < old ? value : old)
PERFSVC_ATOMIC_CHANGE(atomicMax, long long, value > old ? value : old)
PERFSVC_ATOMIC_FETCH(atomicAdd, int, __atomic_fetch_add)
PERFSVC_ATOMIC_FETCH(atomicAdd, unsigned int, __atomic_fetch_add)
PERFSVC_ATOMIC_FETCH(atomicAdd, unsigned long long, __atomic_fetch_add)
PERFSVC_ATOMIC_CHANGE(atomicAdd, float, old + value)
PERFSVC_ATOMIC_CHANGE(atomicAdd, double, old + value)
PERFSVC_ATOMIC_FETCH(atomicSub, int, __atomic_fetch_sub)
PERFSVC_ATOMIC_FETCH(atomicSub, unsigned int, __atomic_fetch_sub)
PERFSVC_ATOMIC_CHANGE(atomicExch, float, ((void)old, value))
PERFSVC_ATOMIC_CHANGE(atomicInc, unsigned int, old >= value ? 0 : old + 1)
PERFSVC_ATOMIC_CHANGE(atomicDec, unsigned int, old == 0 || old > value ? value : old - 1)
PERFSVC_ATOMIC_CAS(int)
PERFSVC_ATOMIC_CAS(unsigned short)
PERFSVC_ATOMIC_CAS(unsigned int)
PERFSVC_ATOMIC_CAS(unsigned long long)

#undef PERFSVC_ATOMIC
#undef PERFSVC_ATOMIC_FETCH
#undef PERFSVC_ATOMIC_CHANGE
#undef PERFSVC_ATOMIC_CAS
#undef PERFSVC_ATOMIC_INTEGER
