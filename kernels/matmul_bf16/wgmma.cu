// The instructions of Hopper. One thread starts TMA copies of whole tiles. With one instruction, four warps together
// multiply 64x128 elements, which they read from shared memory.
//
// No thread computes addresses for the copies, or holds the copied elements, so registers hold only sums. STAGES tiles
// of A and B are in shared memory or being copied. A tile replaces an older tile, so its copy starts only after all
// warps have multiplied the older tile, and all warps wait for each other there. Each multiprocessor runs two blocks;
// one block computes while the other waits.
//
// STAGES: tiles of A and of B in shared memory, 32 KiB for each pair.
#include "wgmma.cuh"

constexpr int TILE = 128;

struct Stage {
    unsigned char a[TILE * ROW_BYTES];
    unsigned char b[TILE * ROW_BYTES];
};

extern "C" __global__ void __launch_bounds__(256, 2)
    matmul_wgmma(const __grid_constant__ CUtensorMap A, const __grid_constant__ CUtensorMap B, float *C, int m,
                 int n, int k) {
    extern __shared__ __align__(1024) Stage stages[];
    uint64_t *const full = reinterpret_cast<uint64_t *>(stages + STAGES);  // a barrier for each stage
    const int row = blockIdx.y * TILE;
    const int column = blockIdx.x * TILE;
    const int steps = (k + DEPTH - 1) / DEPTH;

    const auto load = [&](int step) {
        Stage &stage = stages[step % STAGES];
        uint64_t &barrier = full[step % STAGES];
        arrive_expecting(barrier, sizeof(Stage));
        load_tile(stage.a, A, row, step * DEPTH, barrier);
        load_tile(stage.b, B, column, step * DEPTH, barrier);
    };

    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; ++stage) {
            init_barrier(full[stage], 1);
        }
        publish_barriers();
        for (int step = 0; step < min(STAGES, steps); ++step) {
            load(step);
        }
    }
    __syncthreads();

    const int upper = threadIdx.x / 128 * 64;  // the first row of this warpgroup's half of the tile
    float sums[TILE / 2] = {};
    for (int step = 0; step < steps; ++step) {
        const Stage &stage = stages[step % STAGES];
        wait(full[step % STAGES], step / STAGES % 2);
        multiply(sums, stage.a + upper * ROW_BYTES, stage.b);
        wait_for_products<0>();
        __syncthreads();
        if (threadIdx.x == 0 && step + STAGES < steps) {
            load(step + STAGES);
        }
    }
    store(C, row + upper, column, m, n, sums);
}
