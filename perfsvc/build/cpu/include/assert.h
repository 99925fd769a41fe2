// Like the C library's, without an include guard, because each inclusion reads NDEBUG again.
#undef assert
#ifdef NDEBUG
#define assert(condition) ((void)0)
#else
#define assert(condition)                                                                                       \
  ((condition) ? (void)0                                                                                        \
               : perfsvc::fail("assertion failed at %s:%d: %s, in thread (%u,%u,%u)", __FILE__, __LINE__, #condition, \
                               threadIdx.x, threadIdx.y, threadIdx.z))
#endif
