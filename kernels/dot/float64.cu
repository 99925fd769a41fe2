// Float32 vectors, with products and sums in float64. The product of two floats is exact, and the sums lose almost
// nothing.
//
// On a GPU for computing (A100, H100), float64 has half the rate of float32. This is far faster than the memory, so
// the precision costs no time. On a GPU for graphics, float64 has 1/64 of the rate of float32, and this kernel is
// slow.
//
// BLOCK: threads of a block, a multiple of 32. ITEMS: float4 of each vector that a thread loads before it adds.
#include "block_sum.cuh"
#include "quads.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK, 1024 / BLOCK)
    dot_float64(double *partials, const float *a, const float *b, int n) {
    double mine[4] = {0.0, 0.0, 0.0, 0.0};
    for_each_pair(a, b, n, [&](int place, float x, float y) { mine[place] += static_cast<double>(x) * y; });

    const double total = block_sum((mine[0] + mine[1]) + (mine[2] + mine[3]));
    if (threadIdx.x == 0) {
        partials[blockIdx.x] = total;
    }
}
