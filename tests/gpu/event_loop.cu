// An event-timed loop that shares nothing with perfsvc: prints the median seconds of a vector add, L2 flushed each time.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#define CHECK(call) \
    if (cudaError_t error = (call); error != cudaSuccess) { \
        std::fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(error)); \
        std::exit(1); \
    }

__global__ void add(const float* a, const float* b, float* c, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) c[i] = a[i] + b[i];
}

int main(int, char** argv) {
    const int n = std::atoi(argv[1]), grid = std::atoi(argv[2]), block = std::atoi(argv[3]), count = 200;
    const size_t flushed = 256 << 20;
    float *a, *b, *c;
    char* flush;
    cudaEvent_t start, end;
    CHECK(cudaMalloc(&a, n * sizeof(float)));
    CHECK(cudaMalloc(&b, n * sizeof(float)));
    CHECK(cudaMalloc(&c, n * sizeof(float)));
    CHECK(cudaMalloc(&flush, flushed));
    CHECK(cudaMemset(a, 0, n * sizeof(float)));
    CHECK(cudaMemset(b, 0, n * sizeof(float)));
    CHECK(cudaEventCreate(&start));
    CHECK(cudaEventCreate(&end));
    std::vector<float> milliseconds(count);
    for (float& elapsed : milliseconds) {
        CHECK(cudaMemset(flush, 0, flushed));
        CHECK(cudaEventRecord(start));
        add<<<grid, block>>>(a, b, c, n);
        CHECK(cudaEventRecord(end));
        CHECK(cudaEventSynchronize(end));
        CHECK(cudaEventElapsedTime(&elapsed, start, end));
    }
    std::sort(milliseconds.begin(), milliseconds.end());
    std::printf("%.9g\n", milliseconds[count / 2] * 1e-3);
}
