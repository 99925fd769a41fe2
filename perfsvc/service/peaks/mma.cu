// What tensor cores can multiply by mma instructions, which take operands from registers. They reach the full rate of
// tensor cores up to Ada (sm_89). Newer ones have faster instructions, which only some architectures know.
//
// Each warp multiplies 2 fragments of A with 4 of B into 8 independent sums, so that no product waits for the one before.
#include "operands.cuh"

constexpr int LEFT = 2;
constexpr int RIGHT = 4;
#ifndef STEPS
#define STEPS 8
#endif

#define MMA(instruction)                                                                                               \
    asm volatile("mma.sync.aligned." instruction " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"    \
                 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])                                          \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))

// Adds the products of 16 rows of A and 8 rows of B, over 32 bytes of k.
template <Format format>
__device__ void multiply(float (&sums)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    if constexpr (format == BF16) MMA("m16n8k16.row.col.f32.bf16.bf16.f32");
    if constexpr (format == FP16) MMA("m16n8k16.row.col.f32.f16.f16.f32");
    if constexpr (format == TF32) MMA("m16n8k8.row.col.f32.tf32.tf32.f32");
    if constexpr (format == FP8) MMA("m16n8k32.row.col.f32.e4m3.e4m3.f32");
}

template <Format format>
__device__ void iterate(float *sink, int rounds) {
    uint32_t a[LEFT][4], b[RIGHT][2];
    float sums[LEFT][RIGHT][4] = {};
#pragma unroll
    for (int i = 0; i < LEFT * 4; ++i) a[i / 4][i % 4] = random_word<format>(threadIdx.x * 16 + i);
#pragma unroll
    for (int i = 0; i < RIGHT * 2; ++i) b[i / 2][i % 2] = random_word<format>(threadIdx.x * 16 + 8 + i);
#pragma unroll 1
    for (int round = 0; round < rounds; ++round) {
#pragma unroll
        for (int step = 0; step < STEPS; ++step) {
#pragma unroll
            for (int i = 0; i < LEFT * RIGHT; ++i) multiply<format>(sums[i / RIGHT][i % RIGHT], a[i / RIGHT], b[i % RIGHT]);
        }
    }
    float sum = 0;
#pragma unroll
    for (int i = 0; i < LEFT * RIGHT * 4; ++i) sum += sums[i / 4 / RIGHT][i / 4 % RIGHT][i % 4];
    if (sum == 0.1234567f) *sink = sum;  // so that no compiler leaves the sums out
}

#define KERNEL(name, format)                                                                                           \
    extern "C" __global__ void __launch_bounds__(512, 1) name(float *sink, int rounds) { iterate<format>(sink, rounds); }
KERNEL(perfsvc_peak_bf16, BF16)
KERNEL(perfsvc_peak_fp16, FP16)
KERNEL(perfsvc_peak_tf32, TF32)
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 890
KERNEL(perfsvc_peak_fp8, FP8)
#endif

// ---- FP64. One instruction of Hopper does the work of eight of Ampere's, which Hopper runs at half its rate.

#if __CUDA_ARCH__ >= 900
constexpr int A64 = 8, B64 = 4, SUMS64 = 4;
__device__ void multiply(double (&s)[SUMS64], const double (&a)[A64], const double (&b)[B64]) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64"
        " {%0, %1, %2, %3}, {%4, %5, %6, %7, %8, %9, %10, %11}, {%12, %13, %14, %15}, {%0, %1, %2, %3};"
        : "+d"(s[0]), "+d"(s[1]), "+d"(s[2]), "+d"(s[3])
        : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(a[4]), "d"(a[5]), "d"(a[6]), "d"(a[7]), "d"(b[0]), "d"(b[1]),
          "d"(b[2]), "d"(b[3]));
}
#else
constexpr int A64 = 1, B64 = 1, SUMS64 = 2;
__device__ void multiply(double (&s)[SUMS64], const double (&a)[A64], const double (&b)[B64]) {
    asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
                 : "+d"(s[0]), "+d"(s[1])
                 : "d"(a[0]), "d"(b[0]));
}
#endif

// A round has the same work with both instructions: 2 x 2 products of 16 x 8 over 16 of k, twice.
extern "C" __global__ void __launch_bounds__(512, 1) perfsvc_peak_fp64_tensor(double *sink, int rounds) {
    constexpr int REPEAT = 2 * 8 / A64;
    double a[2][A64], b[2][B64], sums[4][SUMS64] = {};
#pragma unroll
    for (int i = 0; i < 2 * A64; ++i) a[i / A64][i % A64] = normal(threadIdx.x * 32 + i) * 1.000000123456789;
#pragma unroll
    for (int i = 0; i < 2 * B64; ++i) b[i / B64][i % B64] = normal(threadIdx.x * 32 + 16 + i) * 1.000000987654321;
#pragma unroll 1
    for (int round = 0; round < rounds; ++round) {
#pragma unroll
        for (int step = 0; step < REPEAT; ++step) {
#pragma unroll
            for (int i = 0; i < 4; ++i) multiply(sums[i], a[i / 2], b[i % 2]);
        }
    }
    double sum = 0;
#pragma unroll
    for (int i = 0; i < 4 * SUMS64; ++i) sum += sums[i / SUMS64][i % SUMS64];
    if (sum == 0.1234567) *sink = sum;  // so that no compiler leaves the sums out
}
