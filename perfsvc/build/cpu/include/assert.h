// As the C library's: no guard, because NDEBUG is asked anew each time.
#undef assert
#ifdef NDEBUG
#define assert(condition) ((void)0)
#else
#define assert(condition)                                                                                       \
  ((condition) ? (void)0                                                                                        \
               : perfsvc::fail("assertion failed at %s:%d: %s, in thread (%u,%u,%u)", __FILE__, __LINE__, #condition, \
                               threadIdx.x, threadIdx.y, threadIdx.z))
#endif
