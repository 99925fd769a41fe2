// Copies into shared memory that a GPU makes while the thread continues (cp.async). Here each copy is made at once, so
// that a kernel which forgets to wait for a copy is right nevertheless.
#pragma once

inline void __pipeline_memcpy_async(void* shared, const void* global, size_t size, size_t zeros = 0) {
  const uintptr_t addresses = reinterpret_cast<uintptr_t>(shared) | reinterpret_cast<uintptr_t>(global);
  if (zeros > size || (size != 4 && size != 8 && size != 16)) {
    perfsvc::fail("__pipeline_memcpy_async copies 4, 8 or 16 bytes, not %zu with %zu zeros", size, zeros);
  }
  if (addresses % size != 0) {
    perfsvc::fail("__pipeline_memcpy_async of %zu bytes needs addresses that are multiples of %zu", size, size);
  }
  memcpy(shared, global, size - zeros);
  memset(static_cast<char*>(shared) + (size - zeros), 0, zeros);
}
inline void __pipeline_commit() {}
inline void __pipeline_wait_prior(size_t) {}
