// Each thread starts several loads of 16 bytes before it adds. Then come shuffles, and one atomic addition for each
// block.
//
// With one load of 4 bytes at a time, too few bytes are in flight to keep the memory busy. Here each thread has 32 *
// ITEMS bytes in flight before it adds (quads.cuh), and it adds many elements before the atomic addition of its block.
// The launch bound lets the compiler use more registers for loads; without it the compiler saves registers so that
// more threads fit. The result must be zero before the kernel starts, which takes a memset.
//
// 528 blocks, four for each multiprocessor of an H100, go through the whole vectors. With a block for every 4 * ITEMS
// * BLOCK elements, 2^26 elements are read 2 % faster, as fast as the GPU copies, because a multiprocessor that is
// ahead starts another block. But then there are 16384 atomic additions, in any order, and each one rounds the sum so
// far. Half way, this sum is 128 times as large as the result. The error becomes 2.7e-4 instead of 7e-7.
//
// BLOCK: threads of a block, a multiple of 32 up to 1024. ITEMS: float4 of each vector that a thread loads before it
// adds.
#include "block_sum.cuh"
#include "quads.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK, 1024 / BLOCK)
    dot_float4(float *sum, const float *a, const float *b, int n) {
    float mine[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    for_each_pair(a, b, n, [&](int place, float x, float y) { mine[place] += x * y; });

    const float total = block_sum((mine[0] + mine[1]) + (mine[2] + mine[3]));
    if (threadIdx.x == 0) {
        atomicAdd(sum, total);
    }
}
