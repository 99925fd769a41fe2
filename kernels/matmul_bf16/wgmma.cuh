// Instructions that a product on Hopper's tensor cores needs, one function for each PTX instruction: barriers in
// shared memory, copies of tiles by the tensor memory accelerator (TMA), and products that a warpgroup (four warps)
// starts and waits for later.
//
// A tile has rows of 128 bytes along k: 64 bfloat16, or 32 floats, which the tensor cores read as TF32 (TF32 = 1).
// Both kinds have the same number of bytes, so the functions serve both.
//
// The layout of a tile: if the rows were stored 128 bytes apart without swizzling, all 16-byte pieces of a column
// would lie in the same four banks. So TMA swizzles: it stores piece p of row r as piece p ^ (r % 8). The pattern
// repeats every eight rows, which are 1024 bytes, and starts at an address that is a multiple of 1024. The tensor
// cores undo the swizzle: they combine bits 4 to 6 of an address with its bits 7 to 9 by exclusive or, as TMA does. So
// a step of 32 bytes along k only adds 32 to the address of the first row.
#pragma once

#include <cuda.h>
#include <cstdint>

constexpr int ROW_BYTES = 128;
constexpr int STEP_BYTES = 32;  // along k in one instruction: 16 bfloat16 or 8 floats
#if TF32
constexpr int DEPTH = ROW_BYTES / 4;
#else
constexpr int DEPTH = ROW_BYTES / 2;
#endif

__device__ inline uint32_t shared_address(const void *at) { return __cvta_generic_to_shared(at); }

// ---- Barriers. A phase of a barrier ends after `count` arrivals and all expected bytes. Phases have the parities
// ---- 0, 1, 0, 1 ... Before the first phase ends, a wait for parity 1 returns at once.

__device__ inline void init_barrier(uint64_t &barrier, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&barrier)), "r"(count) : "memory");
}

// Makes barriers known to TMA and to the other blocks of a cluster.
__device__ inline void publish_barriers() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

__device__ inline void arrive_expecting(uint64_t &barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&barrier)), "r"(bytes)
                 : "memory");
}

__device__ inline void arrive(uint64_t &barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(&barrier)) : "memory");
}

// Arrives at the barrier with the same address in another block of the cluster.
__device__ inline void arrive_in_block(uint64_t &barrier, int block) {
    asm volatile(
        "{\n"
        ".reg .b32 there;\n"
        "mapa.shared::cluster.u32 there, %0, %1;\n"
        "mbarrier.arrive.shared::cluster.b64 _, [there];\n"
        "}" ::"r"(shared_address(&barrier)),
        "r"(block)
        : "memory");
}

__device__ inline void wait(uint64_t &barrier, int parity) {
    int done;
    do {
        asm volatile(
            "{\n"
            ".reg .pred p;\n"
            "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
            "selp.b32 %0, 1, 0, p;\n"
            "}"
            : "=r"(done)
            : "r"(shared_address(&barrier)), "r"(parity)
            : "memory");
    } while (!done);
}

// Waits for all threads of the cluster. A block without others is a cluster of one block.
__device__ inline void synchronize_cluster() {
    asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}

// ---- Tiles. Outside the matrix, TMA writes zeros; these bytes count at the barrier too.

__device__ inline void load_tile(void *tile, const CUtensorMap &matrix, int row, int k, uint64_t &barrier) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
        " [%0], [%1, {%2, %3}], [%4];" ::"r"(shared_address(tile)),
        "l"(&matrix), "r"(k), "r"(row), "r"(shared_address(&barrier))
        : "memory");
}

// Loads a tile into several blocks of the cluster: `blocks` has one bit for each. The tile has the same address in each
// block, and counts at the barrier of that block.
__device__ inline void load_tile_into(uint16_t blocks, void *tile, const CUtensorMap &matrix, int row, int k,
                                      uint64_t &barrier) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster"
        " [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(shared_address(tile)),
        "l"(&matrix), "r"(k), "r"(row), "r"(shared_address(&barrier)), "h"(blocks)
        : "memory");
}

// ---- Registers: a warpgroup gives registers that it does not need to other warpgroups.

template <int left>
__device__ inline void give_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(left));
}

template <int wanted>
__device__ inline void take_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(wanted));
}

// ---- Products.

// The descriptor of a tile: its address and the distance from eight rows to the next eight, both in units of 16
// bytes, and swizzling in pieces of 16 over 128 bytes (1 in the two highest bits).
__device__ inline uint64_t describe(const void *tile) {
    constexpr uint64_t swizzled = uint64_t(1) << 62;
    constexpr uint64_t eight_rows = uint64_t(8 * ROW_BYTES / 16) << 32;
    return swizzled | eight_rows | (shared_address(tile) & 0x3ffff) >> 4;
}

// Fences the registers of the sums; needed before a product if another instruction has written them.
__device__ inline void fence_sums() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

// Ends a group of products.
__device__ inline void commit_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Waits until at most the last `groups` groups still run.
template <int groups>
__device__ inline void wait_for_products() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(groups) : "memory");
}

#if TF32
#define WGMMA(columns) "wgmma.mma_async.sync.aligned.m64n" #columns "k8.f32.tf32.tf32 "
#define AS_THEY_LIE "1, 1, 1;"  // add to the sums; negate neither
#else
#define WGMMA(columns) "wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32.bf16.bf16 "
#define AS_THEY_LIE "1, 1, 1, 0, 0;"  // add to the sums; negate neither, transpose neither
#endif
#define SUMS_8(i)                                                                                                      \
    "+f"(sums[i]), "+f"(sums[i + 1]), "+f"(sums[i + 2]), "+f"(sums[i + 3]), "+f"(sums[i + 4]), "+f"(sums[i + 5]),      \
        "+f"(sums[i + 6]), "+f"(sums[i + 7])
#define SUMS_32(i) SUMS_8(i), SUMS_8(i + 8), SUMS_8(i + 16), SUMS_8(i + 24)
#define NAMES_0_TO_63                                                                                                  \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "   \
    "%24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, "   \
    "%46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define NAMES_64_TO_127                                                                                                \
    "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, "   \
    "%86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, " \
    "%107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, "     \
    "%125, %126, %127"

// Starts adding the products of 64 rows of A and 128 or 256 rows of B, over 32 bytes of k.
__device__ inline void add_products(float (&sums)[64], uint64_t a, uint64_t b) {
    asm volatile(WGMMA(128) "{" NAMES_0_TO_63 "}, %64, %65, " AS_THEY_LIE
                 : SUMS_32(0), SUMS_32(32)
                 : "l"(a), "l"(b));
}

__device__ inline void add_products(float (&sums)[128], uint64_t a, uint64_t b) {
    asm volatile(WGMMA(256) "{" NAMES_0_TO_63 ", " NAMES_64_TO_127 "}, %128, %129, " AS_THEY_LIE
                 : SUMS_32(0), SUMS_32(32), SUMS_32(64), SUMS_32(96)
                 : "l"(a), "l"(b));
}

// Starts adding the products of two tiles, over all of their 128 bytes of k.
template <int COUNT>
__device__ inline void multiply(float (&sums)[COUNT], const void *a, const void *b) {
    const uint64_t left = describe(a);
    const uint64_t right = describe(b);
    fence_sums();
#pragma unroll
    for (int step = 0; step < ROW_BYTES / STEP_BYTES; ++step) {
        add_products(sums, left + step * STEP_BYTES / 16, right + step * STEP_BYTES / 16);
    }
    commit_products();
}

// Stores the sums of a warpgroup that are inside C. Warp w holds rows 16 w to 16 w + 15. In every eight columns, thread
// t of the warp holds columns 2 (t % 4) and 2 (t % 4) + 1, in rows t / 4 and t / 4 + 8 of the warp. n is even.
template <int COUNT>
__device__ inline void store(float *C, int first_row, int first_column, int m, int n, const float (&sums)[COUNT]) {
    const int thread = threadIdx.x % 128;
    const int row = first_row + thread / 32 * 16 + thread % 32 / 4;
    const int column = first_column + thread % 4 * 2;
#pragma unroll
    for (int i = 0; i < COUNT; i += 4) {
        const int x = column + 2 * i;
        if (x < n && row < m) {
            *reinterpret_cast<float2 *>(&C[row * n + x]) = make_float2(sums[i], sums[i + 1]);
        }
        if (x < n && row + 8 < m) {
            *reinterpret_cast<float2 *>(&C[(row + 8) * n + x]) = make_float2(sums[i + 2], sums[i + 3]);
        }
    }
}
