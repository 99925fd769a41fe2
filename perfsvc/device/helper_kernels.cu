// perfsvc's own kernels: they time other kernels on a GPU, and compute digests and errors of results in its memory.

#include <cuda_fp16.h>

typedef unsigned int u32;
typedef unsigned long long u64;

static __device__ __forceinline__ u64 nanoseconds() {
    u64 now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

// --- timing ----------------------------------------------------------------------------------------------------------

// Blocks the stream until the host has written `ticket` to *released. After the time limit it writes the ticket to
// *expired and ends, so that a host that never releases it cannot hang the GPU. One thread; both words are in the host's
// memory.
extern "C" __global__ void perfsvc_block(const volatile u32* released, volatile u32* expired, u32 ticket, u64 limit_ns) {
    const u64 start = nanoseconds();
    while (*released != ticket) {
        if (nanoseconds() - start > limit_ns) {
            *expired = ticket;
            return;
        }
    }
}

// One block for each multiprocessor stores its cycles and the time. Each multiprocessor counts its own cycles, so two
// stamps are compared only if the same multiprocessor wrote both.
// The numbers of multiprocessors may have gaps (MIG); numbers from `slots` on are ignored.
extern "C" __global__ void perfsvc_stamp(volatile u64* stamps, u32 slots) {
    u32 multiprocessor;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(multiprocessor));
    if (multiprocessor >= slots) return;
    stamps[2 * multiprocessor] = clock64();
    stamps[2 * multiprocessor + 1] = nanoseconds();
}

// --- results ---------------------------------------------------------------------------------------------------------

// The finalizer of SplitMix64 (Steele, Lea, Flood 2014): every bit of the input affects every bit of the output.
static __device__ __forceinline__ u64 mixed(u64 x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

// Returns eight bytes from an address that need not be aligned; bytes beyond the end are zero.
static __device__ __forceinline__ u64 word_at(const unsigned char* data, u64 start, u64 nbytes, bool aligned) {
    if (aligned && start + 8 <= nbytes) return *reinterpret_cast<const u64*>(data + start);
    u64 word = 0;
    for (u64 byte = start; byte < nbytes && byte < start + 8; ++byte) word |= (u64)data[byte] << (8 * (byte - start));
    return word;
}

// Sums words that are mixed with their positions, in two different ways: 128 bits that do not depend on the order in
// which the blocks add. The host adds the size, which distinguishes zeros at the end from missing bytes.
extern "C" __global__ void perfsvc_digest(const unsigned char* data, u64 nbytes, u64* sums) {
    const u64 stride = (u64)gridDim.x * blockDim.x;
    const bool aligned = reinterpret_cast<u64>(data) % 8 == 0;
    u64 first = 0, second = 0;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i * 8 < nbytes; i += stride) {
        const u64 word = word_at(data, i * 8, nbytes, aligned), place = mixed(i + 0x9e3779b97f4a7c15ull);
        first += mixed(word ^ place);
        second += mixed(word + 0xd1b54a32d192ed03ull * place);
    }
    for (int offset = 16; offset > 0; offset /= 2) {
        first += __shfl_down_sync(0xffffffffu, first, offset);
        second += __shfl_down_sync(0xffffffffu, second, offset);
    }
    if (threadIdx.x % 32 == 0) {
        atomicAdd(&sums[0], first);
        atomicAdd(&sums[1], second);
    }
}

static __device__ __forceinline__ double warp_sum(double value) {
    for (int offset = 16; offset > 0; offset /= 2) value += __shfl_down_sync(0xffffffffu, value, offset);
    return value;
}

// Sums the squares of a reference.
template <typename Reference>
static __device__ void squares(const Reference* reference, u64 count, double* sum) {
    double mine = 0;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += (u64)gridDim.x * blockDim.x) {
        const double value = (double)reference[i];
        mine += value * value;
    }
    mine = warp_sum(mine);
    if (threadIdx.x % 32 == 0) atomicAdd(sum, mine);
}

// The narrow floats, decoded here and not by CUDA's headers, which the CPU device does not have. Their names are those of
// perfsvc/dtypes.py.
struct bfloat16 { unsigned short bits; };
struct float8_e4m3fn { unsigned char bits; };
struct float8_e5m2 { unsigned char bits; };

static __device__ __forceinline__ double precise(__half value) { return (double)__half2float(value); }
static __device__ __forceinline__ double precise(bfloat16 value) {
    return (double)__uint_as_float((unsigned)value.bits << 16);
}
static __device__ __forceinline__ double precise(float8_e4m3fn value) {
    const int exponent = value.bits >> 3 & 15, fraction = value.bits & 7;
    if (exponent == 15 && fraction == 7) return NAN;
    const double size = exponent ? ldexp(8.0 + fraction, exponent - 10) : ldexp((double)fraction, -9);
    return value.bits & 128 ? -size : size;
}
static __device__ __forceinline__ double precise(float8_e5m2 value) {
    const int exponent = value.bits >> 2 & 31, fraction = value.bits & 3;
    if (exponent == 31) return fraction ? NAN : value.bits & 128 ? -INFINITY : INFINITY;
    const double size = exponent ? ldexp(4.0 + fraction, exponent - 17) : ldexp((double)fraction, -16);
    return value.bits & 128 ? -size : size;
}
template <typename Number>
static __device__ __forceinline__ double precise(Number value) { return (double)value; }

template <typename Result> struct Whole { static constexpr bool value = true; };
template <> struct Whole<__half> { static constexpr bool value = false; };
template <> struct Whole<bfloat16> { static constexpr bool value = false; };
template <> struct Whole<float8_e4m3fn> { static constexpr bool value = false; };
template <> struct Whole<float8_e5m2> { static constexpr bool value = false; };
template <> struct Whole<float> { static constexpr bool value = false; };
template <> struct Whole<double> { static constexpr bool value = false; };

// |out - ref| / max(|ref|, rms), as error_of in perfsvc/measure/worker/check.py, which explains each case.
template <typename Result, typename Reference>
static __device__ __forceinline__ double error_of(Result result, Reference reference, double rms) {
    const double got = precise(result), wanted = precise(reference);
    const double error = fabs(got - wanted) / fmax(fabs(wanted), rms);
    if constexpr (Whole<Result>::value) {
        // Different integers that are equal in float64.
        if (error == 0 && (u64)result != (u64)reference) return 1.1102230246251565e-16;
    }
    if (isfinite(error) && isfinite(wanted)) return error;
    return got == wanted || (isnan(got) && isnan(wanted)) ? 0.0 : INFINITY;
}

// Errors are never negative, so their bits have the same order as the numbers.
template <typename Result, typename Reference>
static __device__ void errors(const Result* result, const Reference* reference, u64 count, const double* squares,
                              double* sum, u64* largest) {
    const double rms = sqrt(*squares / (double)count);
    double mine = 0, worst = 0;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += (u64)gridDim.x * blockDim.x) {
        const double error = error_of(result[i], reference[i], rms);
        mine += error;
        worst = fmax(worst, error);
    }
    mine = warp_sum(mine);
    for (int offset = 16; offset > 0; offset /= 2) worst = fmax(worst, __shfl_down_sync(0xffffffffu, worst, offset));
    if (threadIdx.x % 32 == 0) {
        atomicAdd(sum, mine);
        atomicMax(largest, (u64)__double_as_longlong(worst));
    }
}

// answer[0] is the sum of the squares of the reference, which the first kernel writes; answer[1] is the sum of the
// errors, and answer[2] holds the bits of the largest error.
#define SQUARES(NAME, REFERENCE)                                                                                       \
    extern "C" __global__ void perfsvc_squares_##NAME(const REFERENCE* reference, u64 count, double* answer) {         \
        squares(reference, count, answer);                                                                             \
    }
#define ERROR(NAME, RESULT, REFERENCE)                                                                                 \
    extern "C" __global__ void perfsvc_error_##NAME(const RESULT* result, const REFERENCE* reference, u64 count,       \
                                                    double* answer) {                                                  \
        errors(result, reference, count, answer, answer + 1, reinterpret_cast<u64*>(answer + 2));                      \
    }

SQUARES(float64, double)
SQUARES(int32, int)
SQUARES(uint32, u32)
SQUARES(int64, long long)
SQUARES(uint64, u64)
ERROR(float16_float64, __half, double)
ERROR(bfloat16_float64, bfloat16, double)
ERROR(float8_e4m3fn_float64, float8_e4m3fn, double)
ERROR(float8_e5m2_float64, float8_e5m2, double)
ERROR(float32_float64, float, double)
ERROR(float64_float64, double, double)
ERROR(int32_int32, int, int)
ERROR(uint32_uint32, u32, u32)
ERROR(int64_int64, long long, long long)
ERROR(uint64_uint64, u64, u64)
ERROR(int32_int64, int, long long)
ERROR(uint32_int64, u32, long long)
ERROR(uint64_int64, u64, long long)
