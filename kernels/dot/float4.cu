// Loads of 16 bytes, several of them under way in each thread; then shuffles, and one atomic addition a block.
//
// One load of 4 bytes after the other leaves the memory waiting for the threads. Here each thread has 32 * ITEMS bytes
// under way before it adds up any of them (quads.cuh), and adds up many before its block's one atomic addition. The
// launch bound lets the compiler spend registers on loads; by itself it would rather have room for more threads. What
// remains is the memset that the result needs first: one more thing to launch.
//
// The blocks are few: 528 of them, four for each multiprocessor of an H100, go through the whole length. A block for
// every 4 * ITEMS * BLOCK elements reads 2^26 of them 2 % faster, as fast as the GPU copies, because a multiprocessor
// that is ahead takes on another block. But then 16384 atomic additions, in any order, each round the sum so far, which
// half way is 128 times what it ends as. The error becomes 2.7e-4 in place of 7e-7.
//
// BLOCK: threads of a block, a multiple of 32 up to 1024. ITEMS: float4 of each vector that a thread has under way.
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
