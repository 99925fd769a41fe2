// The libraries of test_libraries_on_a_gpu.py: one is right, the others do something wrong.
#include <perfsvc.h>
__global__ void scale(float* y, const float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2 * x[i];
}
namespace { __global__ void hidden(float* w, const float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) w[i] = x[i];
} }
PERFSVC_LIBRARY(right, in) {
    const float* x = in.array<float>("x");
    float* y = in.array<float>("y");
    int n = in.integer("n");
    float* w = static_cast<float*>(in.workspace(4 * n));
    return [=](cudaStream_t stream) {
        hidden<<<(n + 255) / 256, 256, 0, stream>>>(w, x, n);
        scale<<<(n + 255) / 256, 256, 0, stream>>>(y, w, n);
    };
}
PERFSVC_LIBRARY(other_stream, in) {
    const float* x = in.array<float>("x");
    float* y = in.array<float>("y");
    int n = in.integer("n");
    cudaStream_t own;
    PERFSVC_CHECK(cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking));
    in.at_end([=] { cudaStreamDestroy(own); });
    return [=](cudaStream_t) { scale<<<(n + 255) / 256, 256, 0, own>>>(y, x, n); };
}
PERFSVC_LIBRARY(launch_fails, in) {
    float* y = in.array<float>("y");
    return [=](cudaStream_t stream) { scale<<<1, 4096, 0, stream>>>(y, y, 1); };
}
PERFSVC_LIBRARY(error, in) {
    return [](cudaStream_t stream) { PERFSVC_CHECK(cudaMemcpyAsync(nullptr, nullptr, 8, cudaMemcpyDefault, stream)); };
}
PERFSVC_LIBRARY(throws, in) {
    std::puts("a line on the standard output");
    return [](cudaStream_t) { throw std::runtime_error("no licence"); };
}
PERFSVC_LIBRARY(waits, in) {
    const float* x = in.array<float>("x");
    float* y = in.array<float>("y");
    int n = in.integer("n");
    return [=](cudaStream_t stream) {
        scale<<<(n + 255) / 256, 256, 0, stream>>>(y, x, n);
        PERFSVC_CHECK(cudaStreamSynchronize(stream));
    };
}
