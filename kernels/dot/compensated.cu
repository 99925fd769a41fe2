// Sums in float32 that keep the rounding error of each addition (after Kahan). The error of the result is nearly that
// of float64, without using float64.
//
// Knuth's two-sum computes the rounding error of an addition exactly; unlike Kahan's order of subtractions, it also
// works if the number added is larger than the sum. A fused multiply-add computes the rounding error of a product. The
// rounding errors are added in a sum of their own, which is stored beside the main sum. This takes about ten
// operations for each pair of elements instead of one. They cost no time as long as all threads wait for the memory. A
// compiler that reorders additions would remove the correction; nvcc does not reorder them. __fmul_rn prevents that
// the product is fused with an addition.
//
// BLOCK: threads of a block, a multiple of 32. ITEMS: float4 of each vector that a thread loads before it adds.
#include "quads.cuh"

struct Sum {
    float value;
    float lost;
};

__device__ void add(Sum &sum, float value) {
    const float total = sum.value + value;
    const float added = total - sum.value;
    sum.lost += (sum.value - (total - added)) + (value - added);
    sum.value = total;
}

__device__ void add_product(Sum &sum, float x, float y) {
    const float product = __fmul_rn(x, y);
    add(sum, product);
    sum.lost += fmaf(x, y, -product);
}

__device__ void add_sum(Sum &sum, float value, float lost) {
    add(sum, value);
    sum.lost += lost;
}

// Each warp stores two partial sums: its sum, and the sum of its rounding errors.
extern "C" __global__ void __launch_bounds__(BLOCK, 1024 / BLOCK)
    dot_compensated(float *partials, const float *a, const float *b, int n) {
    Sum mine[4] = {};
    for_each_pair(a, b, n, [&](int place, float x, float y) { add_product(mine[place], x, y); });

    for (int place = 1; place < 4; ++place) {
        add_sum(mine[0], mine[place].value, mine[place].lost);
    }
    for (int offset = 16; offset > 0; offset /= 2) {
        const float value = __shfl_down_sync(0xffffffff, mine[0].value, offset);
        const float lost = __shfl_down_sync(0xffffffff, mine[0].lost, offset);
        add_sum(mine[0], value, lost);
    }

    if (threadIdx.x % 32 == 0) {
        const int warp = (blockIdx.x * BLOCK + threadIdx.x) / 32;
        partials[2 * warp] = mine[0].value;
        partials[2 * warp + 1] = mine[0].lost;
    }
}
