// The block that ends last adds the sums of all blocks. So there is one launch, no memset, and no atomic addition of
// floats.
//
// Each block stores its sum and then increments a counter. A fence between the two makes the sum visible before the
// increment. The block that increments the counter last knows that all sums are stored. The counter wraps to zero by
// itself, ready for the next launch. The sums are always added in the same order, so each launch gives the same result
// to the last bit.
//
// BLOCK: threads of a block, a multiple of 32 up to 1024. ITEMS: float4 of each vector that a thread loads before it
// adds.
#include "block_sum.cuh"
#include "quads.cuh"

__device__ unsigned int blocks_done;

extern "C" __global__ void __launch_bounds__(BLOCK, 1024 / BLOCK)
    dot_last_block(float *sum, float *partials, const float *a, const float *b, int n) {
    __shared__ bool is_last;

    float mine[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    for_each_pair(a, b, n, [&](int place, float x, float y) { mine[place] += x * y; });

    float total = block_sum((mine[0] + mine[1]) + (mine[2] + mine[3]));
    if (threadIdx.x == 0) {
        partials[blockIdx.x] = total;
        __threadfence();
        is_last = atomicInc(&blocks_done, gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();

    if (is_last) {
        __threadfence();
        total = 0.0f;
        for (int i = threadIdx.x; i < gridDim.x; i += BLOCK) {
            total += __ldcg(&partials[i]);
        }
        total = block_sum(total);
        if (threadIdx.x == 0) {
            *sum = total;
        }
    }
}
