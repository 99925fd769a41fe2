// Kernels as C++ has them: templates and namespaces, structs, clusters, grids that wait, and launches that overlap.
#include <cooperative_groups.h>

namespace cpp {

using real = float;
enum Size { small = 64, large = 256 };

template <typename T, int factor>
__global__ void multiply(T *y, const T *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = factor * x[i];
}

struct Line {
    const float *x;
    int n;
    double slope;
    short tag;
};

__global__ void line(float *y, Line l) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < l.n) y[i] = static_cast<float>(l.slope * l.x[i] + l.tag);
}

__global__ void cluster_sizes(int *sizes) {
    unsigned blocks, rank;
    asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(blocks));
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    if (threadIdx.x == 0) sizes[blockIdx.y * gridDim.x + blockIdx.x] = blocks * 100 + rank;
}

// Each block adds its number after all blocks have seen the sum so far, so the result needs every block in every round.
__global__ void rounds(int *sum, int *seen, int count) {
    auto grid = cooperative_groups::this_grid();
    for (int round = 0; round < count; ++round) {
        int before = *reinterpret_cast<volatile int *>(sum);
        grid.sync();
        if (threadIdx.x == 0) atomicAdd(sum, before + blockIdx.x);
        grid.sync();
    }
    if (threadIdx.x == 0) seen[blockIdx.x] = *reinterpret_cast<volatile int *>(sum);
}

__global__ void first(float *between, const float *x, int n) {
    cudaTriggerProgrammaticLaunchCompletion();
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) between[i] = x[i] + 1;
}

__global__ void second(float *y, const float *between, int n) {
    cudaGridDependencySynchronize();
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2 * between[i];
}

}  // namespace cpp
