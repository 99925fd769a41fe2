// What Hopper's tensor cores can multiply: wgmma instructions of the largest shape, on operands in shared memory.
//
// Two warpgroups of a block take turns on the tensor cores of a multiprocessor. Each multiplies its own 64 rows of A with
// the 256 rows of B that both share. Rows are 128 bytes long, which is four steps of 32 bytes along k in every format,
// so all formats have the same loop. Nothing is loaded after the start.
#include "operands.cuh"

constexpr int ROW_BYTES = 128;
constexpr int STEP_BYTES = 32;
#ifndef GROUPS
#define GROUPS 2
#endif
#ifndef STEPS
#define STEPS 16
#endif
constexpr int A_ROWS = 64;
constexpr int B_ROWS = 256;
constexpr int SUMS = 128;  // of a thread: 64 x 256 over 128 threads

struct Operands {
    uint32_t a[GROUPS][A_ROWS * ROW_BYTES / 4];
    uint32_t b[B_ROWS * ROW_BYTES / 4];
};

// The descriptor of a tile: its address and the distance from eight rows to the next eight, both in units of 16
// bytes, and swizzling over 128 bytes (1 in the two highest bits).
__device__ uint64_t describe(const void *tile) {
    constexpr uint64_t swizzled = uint64_t(1) << 62;
    constexpr uint64_t eight_rows = uint64_t(8 * ROW_BYTES / 16) << 32;
    return swizzled | eight_rows | (uint64_t(__cvta_generic_to_shared(tile)) & 0x3ffff) >> 4;
}

#define SUMS_8(i)                                                                                                      \
    "+f"(sums[i]), "+f"(sums[i + 1]), "+f"(sums[i + 2]), "+f"(sums[i + 3]), "+f"(sums[i + 4]), "+f"(sums[i + 5]),      \
        "+f"(sums[i + 6]), "+f"(sums[i + 7])
#define SUMS_32(i) SUMS_8(i), SUMS_8(i + 8), SUMS_8(i + 16), SUMS_8(i + 24)
#define NAMES                                                                                                          \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "  \
    "%24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, "   \
    "%46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67, "   \
    "%68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, "   \
    "%90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, "   \
    "%110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, "    \
    "%128, %129, "
#define MULTIPLY(instruction, as_they_lie)                                                                             \
    asm volatile("wgmma.mma_async.sync.aligned.m64n256" instruction " " NAMES as_they_lie                              \
                 : SUMS_32(0), SUMS_32(32), SUMS_32(64), SUMS_32(96)                                                   \
                 : "l"(a), "l"(b))

// Starts adding the products of 64 rows of A and 256 rows of B, over 32 bytes of k. The ones: add to the sums, and
// negate neither operand. The zeros: transpose neither.
template <Format format>
__device__ void multiply(float (&sums)[SUMS], uint64_t a, uint64_t b) {
    if constexpr (format == BF16) MULTIPLY("k16.f32.bf16.bf16", "1, 1, 1, 0, 0;");
    if constexpr (format == FP16) MULTIPLY("k16.f32.f16.f16", "1, 1, 1, 0, 0;");
    if constexpr (format == TF32) MULTIPLY("k8.f32.tf32.tf32", "1, 1, 1;");
    if constexpr (format == FP8) MULTIPLY("k32.f32.e4m3.e4m3", "1, 1, 1;");
}

template <Format format>
__device__ void iterate(float *sink, int rounds) {
    __shared__ __align__(1024) Operands operands;
    uint32_t *words = reinterpret_cast<uint32_t *>(&operands);
    for (int i = threadIdx.x; i < sizeof(Operands) / 4; i += blockDim.x) words[i] = random_word<format>(i);
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // shows the stores to the tensor cores
    __syncthreads();

    const uint64_t a = describe(operands.a[threadIdx.x / 128]);
    const uint64_t b = describe(operands.b);
    float sums[SUMS] = {};
#pragma unroll 1
    for (int round = 0; round < rounds; ++round) {
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
        for (int step = 0; step < STEPS; ++step) {
            const int along = step * STEP_BYTES % ROW_BYTES / 16;
            multiply<format>(sums, a + along, b + along);
        }
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        // The other warpgroup keeps the tensor cores busy meanwhile.
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    }

    float sum = 0;
#pragma unroll
    for (int i = 0; i < SUMS; ++i) sum += sums[i];
    if (sum == 0.1234567f) *sink = sum;  // so that no compiler leaves the sums out
}

#define KERNEL(name, format)                                                                                           \
    extern "C" __global__ void __launch_bounds__(128 * GROUPS, 1) name(float *sink, int rounds) {                      \
        iterate<format>(sink, rounds);                                                                                 \
    }
KERNEL(perfsvc_peak_bf16, BF16)
KERNEL(perfsvc_peak_fp16, FP16)
KERNEL(perfsvc_peak_tf32, TF32)
KERNEL(perfsvc_peak_fp8, FP8)
