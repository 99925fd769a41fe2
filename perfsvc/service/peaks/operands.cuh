// Random operands for tensor cores. With zeros or repeated numbers, tensor cores draw far less power than in real work,
// and the GPU would not lower its clock as it does then.
#pragma once

#include <cstdint>

enum Format { BF16, FP16, TF32, FP8 };

// A hash of 32 bits: C. Wellons, "Prospecting for hash functions", 2018 (lowbias32).
__device__ inline uint32_t hash(uint32_t x) {
    x = (x ^ x >> 16) * 0x7feb352du;
    x = (x ^ x >> 15) * 0x846ca68bu;
    return x ^ x >> 16;
}

// A number of about the standard normal distribution: the sum of four random bytes, shifted and scaled.
__device__ inline float normal(uint32_t index) {
    return (int(__dp4a(hash(index), 0x01010101u, 0u)) - 510) * (1.0f / 147.8f);
}

// The bits of one, two or four random numbers in a format; a word with another index has other numbers.
template <Format format>
__device__ inline uint32_t random_word(uint32_t index) {
    const float a = normal(4 * index);
    const float b = normal(4 * index + 1);
    uint32_t word = 0;
    if constexpr (format == TF32) {
        word = __float_as_uint(a);
    } else if constexpr (format == BF16) {
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(a), "f"(b));
    } else if constexpr (format == FP16) {
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(a), "f"(b));
    } else {
        const float c = normal(4 * index + 2);
        const float d = normal(4 * index + 3);
        uint16_t low, high;
        asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(low) : "f"(a), "f"(b));
        asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(high) : "f"(c), "f"(d));
        word = uint32_t(high) << 16 | low;
    }
    return word;
}
