// The CUDA C++ that kernels use, for a C++ compiler of the host. It is included before a .cu file, which then compiles
// unchanged.
//
// It needs only the C library and no C++ library, so that the first build takes no longer than others.
// Nothing here may name a path: the text decides the binary, and equal kernels must give equal bytes everywhere.
#pragma once

#define __CUDACC__ 1
#define PERFSVC_CPU 1

// A compiler that knows the path of libstdc++ (from a wrapper, or CPLUS_INCLUDE_PATH) finds that library's <math.h> and
// <stdlib.h> before the C library's, even with -nostdinc++. With this macro they only include the C library's.
#define _GLIBCXX_INCLUDE_NEXT_C_HEADERS 1

#include <float.h>
#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "runtime/qualifiers.h"
#include "runtime/vectors.h"
#include "runtime/stack.h"
#include "runtime/block.h"
#include "runtime/launch.h"
#include "runtime/warp.h"
#include "runtime/atomics.h"
#include "runtime/std.h"
#include "runtime/math.h"
#include "runtime/intrinsics.h"
