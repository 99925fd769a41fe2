// What the tests of tensor maps launch: one block fetches one box, and hands out its bytes as they lie in shared memory.
#include <cuda.h>

constexpr int most_bytes = 16384;

__device__ unsigned shared_address(const void *pointer) { return static_cast<unsigned>(__cvta_generic_to_shared(pointer)); }

extern "C" __global__ void fetch(const __grid_constant__ CUtensorMap map, uint4 *out, int row, int column, int bytes) {
    __shared__ __align__(1024) uint4 box[most_bytes / sizeof(uint4)];
    __shared__ unsigned long long arrived;

    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&arrived)));
        asm volatile("fence.proxy.async;");
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&arrived)), "r"(bytes));
        asm volatile(
            "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
                shared_address(box)),
            "l"(&map), "r"(column), "r"(row), "r"(shared_address(&arrived))
            : "memory");
    }
    __syncthreads();

    for (unsigned done = 0; !done;) {
        asm volatile(
            "{ .reg .pred over; mbarrier.try_wait.parity.shared::cta.b64 over, [%1], 0; selp.u32 %0, 1, 0, over; }"
            : "=r"(done)
            : "r"(shared_address(&arrived))
            : "memory");
    }
    for (int i = threadIdx.x; i < bytes / 16; i += blockDim.x) out[i] = box[i];
}

// Hands out what stands around two maps, and in how many of their bytes those differ.
extern "C" __global__ void arrive(short a, const __grid_constant__ CUtensorMap first,
                                  const __grid_constant__ CUtensorMap second, double b, signed char c, double *out) {
    const char *one = reinterpret_cast<const char *>(&first), *other = reinterpret_cast<const char *>(&second);
    int differing = 0;
    for (int i = 0; i < sizeof(CUtensorMap); ++i) differing += one[i] != other[i];
    out[0] = differing;
    out[1] = a;
    out[2] = b;
    out[3] = c;
}
