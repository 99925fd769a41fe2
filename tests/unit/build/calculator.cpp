// Asks NVIDIA's occupancy calculator for the blocks of each launch on standard input.
#include <cstdio>
#include <initializer_list>
#include "cuda_occupancy.h"

int main() {
    int major, minor, threads, registers, block, barriers;
    unsigned long shared, of_multiprocessor, reserved;
    while (std::scanf("%d %d %d %lu %lu %d %d %lu %d", &major, &minor, &threads, &of_multiprocessor, &reserved,
                      &registers, &block, &shared, &barriers) == 9) {
        cudaOccDeviceProp device{};
        device.computeMajor = major;
        device.computeMinor = minor;
        device.maxThreadsPerBlock = 1024;
        device.maxThreadsPerMultiprocessor = threads;
        device.regsPerBlock = device.regsPerMultiprocessor = 65536;
        device.warpSize = 32;
        device.sharedMemPerBlock = 49152;
        device.sharedMemPerMultiprocessor = of_multiprocessor;
        device.sharedMemPerBlockOptin = of_multiprocessor - reserved;
        device.reservedSharedMemPerBlock = reserved;
        device.numSms = 1;
        cudaOccFuncAttributes kernel{};
        kernel.maxThreadsPerBlock = 1024;
        kernel.numRegs = registers;
        kernel.partitionedGCConfig = PARTITIONED_GC_OFF;
        kernel.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
        kernel.maxDynamicSharedSizeBytes = shared;
        kernel.numBlockBarriers = barriers;
        cudaOccDeviceState state;
        cudaOccResult result{};
        if (cudaOccMaxActiveBlocksPerMultiprocessor(&result, &device, &kernel, &state, block, shared)) return 1;
        std::printf("%d\n", result.activeBlocksPerMultiprocessor);
    }
}
