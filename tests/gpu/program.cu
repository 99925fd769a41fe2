// The program of test_programs_on_a_gpu.py, which times a kernel and prints the GPU that it sees.
#include <cstdio>
__global__ void spin(long long cycles) {
    for (long long start = clock64(); clock64() - start < cycles;) {}
}
int main() {
    int count = 0;
    cudaGetDeviceCount(&count);
    cudaDeviceProp properties;
    cudaGetDeviceProperties(&properties, 0);
    std::printf("devices %d uuid ", count);
    for (char byte : properties.uuid.bytes) std::printf("%02x", static_cast<unsigned char>(byte));
    std::printf("\n");
    cudaEvent_t start, stop;
    cudaEventCreate(&start);
    cudaEventCreate(&stop);
    for (int sample = 0; sample < 21; sample++) {
        cudaEventRecord(start);
        spin<<<1, 1>>>(CYCLES);
        cudaEventRecord(stop);
        if (cudaEventSynchronize(stop) != cudaSuccess) return 1;
        float ms = 0;
        cudaEventElapsedTime(&ms, start, stop);
        if (sample) std::printf("took %f ms\n", ms);
    }
}
