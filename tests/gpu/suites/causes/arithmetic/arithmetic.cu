// Arithmetic that the compiler cannot shorten: each step needs the one before.

__device__ float drifted(float x, int steps) {
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        x = 0.99f * x + 0.01f;
    }
    return x;
}

__device__ float curbed(float x, int steps) {
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        x -= 0.01f * x * x;
    }
    return x;
}

// TIMES: how often the steps are done; all but the last time for nothing.
extern "C" __global__ void steps(float *b, const float *a, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float x = a[i];
#pragma unroll 1
        for (int time = 1; time < TIMES; ++time) {
            x = a[i] + 0.0f * curbed(x, STEPS);
        }
        b[i] = curbed(x, STEPS);
    }
}

// The same as `steps` with TIMES = 1, in other words.
extern "C" __global__ void renamed(float *b, const float *a, int n) {
    const int index = threadIdx.x + blockIdx.x * blockDim.x;
    if (index < n) {
        const float value = a[index];
        b[index] = curbed(value, STEPS);
    }
}

// The steps of each element, by a grid of any size.
extern "C" __global__ void looped(float *b, const float *a, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        b[i] = curbed(a[i], STEPS);
    }
}

// Elements whose number has its bit of 32 set are curbed, the others drift. PARTED: 1 gives each warp 16 of either.
extern "C" __global__ void branches(float *b, const float *a, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const int lane = i % 32, odd = i / 32 % 2;
    const int at = PARTED ? i / 64 * 64 + lane / 2 + 16 * odd + 32 * (lane % 2) : i;
    if (at < n) {
        b[at] = at / 32 % 2 ? curbed(a[at], STEPS) : drifted(a[at], STEPS);
    }
}

// ACCUMULATORS sums of a thread that are all alive at once: more than fit the registers that -maxrregcount leaves.
extern "C" __global__ void sums(float *b, const float *a, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        const float x = a[i];
        float sum[ACCUMULATORS];
#pragma unroll
        for (int k = 0; k < ACCUMULATORS; ++k) {
            sum[k] = x + k;
        }
#pragma unroll 1
        for (int step = 0; step < STEPS; ++step) {
#pragma unroll
            for (int k = 0; k < ACCUMULATORS; ++k) {
                sum[k] = 0.99f * sum[k] + 0.01f;
            }
        }
        float total = 0.0f;
#pragma unroll
        for (int k = 0; k < ACCUMULATORS; ++k) {
            total += sum[k];
        }
        b[i] = total;
    }
}

// One warp of a block after the other takes STEPS steps; with TOGETHER = 1 the others wait for it at a barrier.
extern "C" __global__ void turns(float *b, const float *a, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const int warps = blockDim.x / 32;
    float x = i < n ? a[i] : 0.0f;
#pragma unroll 1
    for (int turn = 0; turn < warps; ++turn) {
        if (turn == threadIdx.x / 32) {
            x = curbed(x, STEPS);
        }
#if TOGETHER
        __syncthreads();
#endif
    }
    if (i < n) {
        b[i] = x;
    }
}
