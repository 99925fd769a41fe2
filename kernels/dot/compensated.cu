// Float32 sums that keep what each addition rounds away, after Kahan: nearly the error of float64 without any float64.
//
// Subtracting its parts from a rounded sum gives back what was lost (the two-sum of Knuth, which unlike Kahan's own
// order of subtractions also holds where the smaller number is added to), and a fused multiply-add gives what a
// product lost. The lost parts are summed up beside the sums and handed out with them. Some ten operations for each
// pair in place of one, which cost nothing as long as all wait for the memory. A compiler that took the liberty to
// reorder additions (nvcc does not) would take it all away; __fmul_rn keeps the product from being fused.
//
// BLOCK: threads of a block, a multiple of 32. ITEMS: float4 of each vector that a thread has under way.
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

// Two partial sums a warp: its sum and what that has lost.
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
