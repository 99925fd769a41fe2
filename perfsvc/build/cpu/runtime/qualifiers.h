// The qualifiers that CUDA adds to declarations.
#pragma once

// The compiler ignores the annotations; perfsvc/build/cpu/cuda_text.py finds entries and shared arrays by them.
#define __global__ __attribute__((annotate("__global__")))
#define __constant__ __attribute__((annotate("__constant__"), visibility("default"), used))

#define __device__
#define __host__
#define __managed__
#define __grid_constant__
#define __launch_bounds__(...)
#define __maxnreg__(...)

// A block runs on one thread of the operating system from its first instruction to its last.
#define __shared__ thread_local

#define __forceinline__ __inline__ __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __align__(n)

#if !__has_builtin(__builtin_assume)
#define __builtin_assume(condition) ((void)0)
#endif
#if !__has_builtin(__builtin_assume_aligned)
#define __builtin_assume_aligned(pointer, ...) (pointer)
#endif

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
