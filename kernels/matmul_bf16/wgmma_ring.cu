// Warps with different tasks: one thread only fetches tiles, and two warpgroups only multiply. Barriers synchronize
// them.
//
// The stages in shared memory form a ring. The producer fetches tiles ahead as long as a stage is empty. It waits only
// for an empty stage, and the consumers wait only for a full stage. Consumers start the next products before the
// previous products have ended, so the tensor cores do not pause at a barrier. The producer gives most of its
// registers to the consumers. Each consumer warpgroup can then keep 64x256 sums. A wider tile needs fewer bytes for
// each product. Only the wide tile gains anything: with 128 columns, one such block on a multiprocessor is slower than
// two blocks of `wgmma` in bfloat16, and as fast in TF32.
//
// With fewer blocks than tiles (`persistent`), a block computes several tiles, and the producer fetches for the next
// tile while the consumers still store the previous one. At any time the blocks work on a rectangle of tiles that is
// GROUP high, so they share most of the fetched bytes in the L2 cache. The order of the tiles matters more than the
// time that persistence saves. 132 tiles of 128x256 fetch least if they form about a square of C, which is 16 tiles
// high. In rectangles 8 high, this kernel was slower than with a block for each tile.
//
// With CLUSTER = 2, two blocks, one above the other in C, use the same tile of B. Each block fetches half of it for
// both. This saves a third of the bytes that the L2 cache has to deliver, and gains more than persistence.
//
// COLUMNS: width of a block's tile, 128 or 256; STAGES: tiles of A and B in the ring; GROUP: height of the rectangle,
// in tiles (of a cluster); CLUSTER: blocks in a cluster, 1 or 2.
#include "wgmma.cuh"

constexpr int ROWS = 128;
constexpr int CONSUMERS = 2;  // warpgroups
constexpr int THREADS = 128 * (1 + CONSUMERS);
constexpr int CONSUMER_WARPS = 4 * CONSUMERS;

struct Stage {
    unsigned char a[ROWS * ROW_BYTES];
    unsigned char b[COLUMNS * ROW_BYTES];
};

// A stage of the ring, and the parity of its phase, which changes with each pass through the ring.
struct Place {
    int stage = 0;
    int parity = 0;

    __device__ void advance() {
        if (++stage == STAGES) {
            stage = 0;
            parity ^= 1;
        }
    }
};

// The tiles of C that a block computes, in order: GROUP tiles down, then the next column of tiles.
class Tiles {
  public:
    __device__ Tiles(int m, int n)
        : down((m + CLUSTER * ROWS - 1) / (CLUSTER * ROWS)), across((n + COLUMNS - 1) / COLUMNS),
          next(blockIdx.x / CLUSTER) {}

    __device__ bool take(int &row, int &column) {
        if (next >= down * across) {
            return false;
        }
        const int group = next / (GROUP * across);
        const int height = min(GROUP, down - group * GROUP);  // the last group may be lower
        const int within = next - group * GROUP * across;
        row = ((group * GROUP + within % height) * CLUSTER + blockIdx.x % CLUSTER) * ROWS;
        column = within / height * COLUMNS;
        next += gridDim.x / CLUSTER;
        return true;
    }

  private:
    int down, across, next;
};

__device__ void produce(const CUtensorMap &A, const CUtensorMap &B, int m, int n, int k, Stage *stages,
                        uint64_t *full, uint64_t *empty) {
    constexpr int PART = COLUMNS / CLUSTER;  // columns of the tile of B that this block fetches for its cluster
    const int part = blockIdx.x % CLUSTER * PART;
    Place place;
    int row, column;
    for (Tiles tiles(m, n); tiles.take(row, column);) {
        for (int at = 0; at < k; at += DEPTH) {
            Stage &stage = stages[place.stage];
            uint64_t &barrier = full[place.stage];
            wait(empty[place.stage], place.parity ^ 1);
            arrive_expecting(barrier, sizeof(Stage));
            load_tile(stage.a, A, row, at, barrier);
            if constexpr (CLUSTER > 1) {
                load_tile_into((1 << CLUSTER) - 1, stage.b + part * ROW_BYTES, B, column + part, at, barrier);
            } else {
                load_tile(stage.b, B, column, at, barrier);
            }
            place.advance();
        }
    }
}

// Signals to all producers that fill this stage that a warp has read the stage.
__device__ void release(uint64_t &empty) {
    if (threadIdx.x % 32 < CLUSTER) {
        if constexpr (CLUSTER > 1) {
            arrive_in_block(empty, threadIdx.x % 32);
        } else {
            arrive(empty);
        }
    }
}

__device__ void consume(float *C, int m, int n, int k, const Stage *stages, uint64_t *full, uint64_t *empty) {
    const int upper = (threadIdx.x / 128 - 1) * 64;  // the first row of this warpgroup's half of the tile
    Place place;
    int row, column;
    for (Tiles tiles(m, n); tiles.take(row, column);) {
        float sums[COLUMNS / 2] = {};
        int before = -1;
        for (int at = 0; at < k; at += DEPTH) {
            const Stage &stage = stages[place.stage];
            wait(full[place.stage], place.parity);
            multiply(sums, stage.a + upper * ROW_BYTES, stage.b);
            if (before >= 0) {
                wait_for_products<1>();
                release(empty[before]);
            }
            before = place.stage;
            place.advance();
        }
        wait_for_products<0>();
        release(empty[before]);
        store(C, row + upper, column, m, n, sums);
    }
}

extern "C" __global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(THREADS, 1)
    matmul_wgmma_ring(const __grid_constant__ CUtensorMap A, const __grid_constant__ CUtensorMap B, float *C, int m,
                      int n, int k) {
    extern __shared__ __align__(1024) Stage stages[];
    uint64_t *const full = reinterpret_cast<uint64_t *>(stages + STAGES);
    uint64_t *const empty = full + STAGES;

    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; ++stage) {
            init_barrier(full[stage], 1);
            init_barrier(empty[stage], CLUSTER * CONSUMER_WARPS);
        }
        publish_barriers();
    }
    synchronize_cluster();

    // 128 threads with 24 registers and 256 threads with 240 need as many registers as 384 threads with 168.
    if (threadIdx.x < 128) {
        give_registers<24>();
        if (threadIdx.x == 0) {
            produce(A, B, m, n, k, stages, full, empty);
        }
    } else {
        take_registers<240>();
        consume(C, m, n, k, stages, full, empty);
    }

    // No block may exit while another block of the cluster still arrives at its barriers.
    synchronize_cluster();
}
