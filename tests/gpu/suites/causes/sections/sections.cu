// Sections of straight code that differ in a number: each warp runs ROUNDS of them, and begins at another one.
//
// SECTIONS: how many there are, from 1 to 64: 64 fit no instruction cache. STEPS: instructions of a section.
template <int SECTION>
__device__ __noinline__ float section(float x) {
#pragma unroll
    for (int step = 0; step < STEPS; ++step) {
        x = 0.99f * x + (0.01f + 0.001f * SECTION);
    }
    return x;
}

// Runs a section, found by halving the range of sections that it may be.
template <int FIRST, int END>
__device__ __forceinline__ float chosen(int number, float x) {
    if constexpr (END - FIRST == 1) {
        return section<FIRST>(x);
    } else {
        constexpr int MIDDLE = (FIRST + END) / 2;
        return number < MIDDLE ? chosen<FIRST, MIDDLE>(number, x) : chosen<MIDDLE, END>(number, x);
    }
}

extern "C" __global__ void sections(float *b, const float *a, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float x = a[i];
#pragma unroll 1
        for (int round = 0; round < ROUNDS; ++round) {
            x = chosen<0, SECTIONS>((round + i / 32) % SECTIONS, x);
        }
        b[i] = x;
    }
}
