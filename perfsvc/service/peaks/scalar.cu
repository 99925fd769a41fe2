// What the FP32 and FP64 units can compute: fused multiply-adds without any access to memory.
//
// Each thread has CHAINS independent numbers, so that no multiply-add waits for the one before. Every number follows the
// chaotic map x <- c - x * x, which stays within [-2, 2]: its bits change with each step, as they do in real work, so
// the GPU draws realistic power. A round is long, so that the loop's own instructions do not count.

#ifndef CHAINS
#define CHAINS 8
#endif
#ifndef STEPS
#define STEPS 128
#endif

template <typename Number>
__device__ void iterate(Number *sink, int rounds) {
    const Number c = Number(1.9) + Number(1e-6) * Number(threadIdx.x);
    Number x[CHAINS];
#pragma unroll
    for (int i = 0; i < CHAINS; ++i) x[i] = Number(0.1) * Number(i + 1);
#pragma unroll 1
    for (int round = 0; round < rounds; ++round) {
#pragma unroll
        for (int step = 0; step < STEPS; ++step) {
#pragma unroll
            for (int i = 0; i < CHAINS; ++i) x[i] = c - x[i] * x[i];  // contracted to one fused multiply-add
        }
    }
    Number sum = 0;
#pragma unroll
    for (int i = 0; i < CHAINS; ++i) sum += x[i];
    // The sum is within 2 * CHAINS: the store is only there so that no compiler leaves the work out.
    if (sum > Number(4 * CHAINS)) *sink = sum;
}

extern "C" __global__ void __launch_bounds__(1024) perfsvc_peak_fp32(float *sink, int rounds) { iterate(sink, rounds); }

extern "C" __global__ void __launch_bounds__(1024) perfsvc_peak_fp64(double *sink, int rounds) { iterate(sink, rounds); }
