// An event-timed loop that shares nothing with perfsvc but the kernel: prints the median seconds of a vector add.
// The L2 cache is overwritten before each launch.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "grid_stride.cu"

#define CHECK(call) \
    if (cudaError_t error = (call); error != cudaSuccess) { \
        std::fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(error)); \
        std::exit(1); \
    }

static float* random_floats(int n, unsigned seed) {
    std::minstd_rand engine(seed);
    std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
    std::vector<float> host(n);
    for (float& value : host) value = uniform(engine);
    float* device;
    CHECK(cudaMalloc(&device, n * sizeof(float)));
    CHECK(cudaMemcpy(device, host.data(), n * sizeof(float), cudaMemcpyHostToDevice));
    return device;
}

int main(int, char** argv) {
    const int n = std::atoi(argv[1]), grid = std::atoi(argv[2]), block = std::atoi(argv[3]), count = 200;
    const size_t flushed = 256 << 20;
    const float *a = random_floats(n, 1), *b = random_floats(n, 2);
    float* c = random_floats(n, 3);
    char* flush;
    CHECK(cudaMalloc(&flush, flushed));
    cudaEvent_t start, end;
    CHECK(cudaEventCreate(&start));
    CHECK(cudaEventCreate(&end));
    std::vector<float> milliseconds(count);
    for (float& elapsed : milliseconds) {
        CHECK(cudaMemset(flush, 0, flushed));
        CHECK(cudaEventRecord(start));
        vector_add_grid_stride<<<grid, block>>>(c, a, b, n);
        CHECK(cudaEventRecord(end));
        CHECK(cudaEventSynchronize(end));
        CHECK(cudaEventElapsedTime(&elapsed, start, end));
    }
    std::sort(milliseconds.begin(), milliseconds.end());
    std::printf("%.9g\n", milliseconds[count / 2] * 1e-3);
}
