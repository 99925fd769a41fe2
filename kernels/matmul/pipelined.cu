// As `registers`, with tiles on their way from global memory while others are worked on, and four floats to a load.
//
// - Tiles are copied straight into shared memory (cp.async), STAGES - 1 of them ahead of the one that is worked on: the
//   wait for global memory is over before its result is needed, and no register holds what is on its way.
// - The tile of A lies transposed in shared memory, so that four rows of it are one load of 16 bytes, as are four
//   columns of B. With 8 x 8 elements of C a thread, 4 loads feed 64 multiply-adds. More elements would need fewer
//   loads, but also so many registers that half as many warps fit: on an H100 neither 8 x 16 nor wider tiles gained
//   anything worth telling, and they lost much where matrices are small.
// - What the next step needs is loaded into a second set of registers before the multiply-adds of this one.
//
// Each scheduler of a multiprocessor starts one instruction a cycle, and can start a multiply-add in each: any other
// instruction takes the place of one. All of the above is done so that nine out of ten are multiply-adds.
//
// Tiles are as large as there is work for. A matrix with fewer tiles 128 high than the GPU has multiprocessors would
// leave some without any, and the others would take as long as ever; with tiles 64 high, twice as many work.
//
// Edges cost next to nothing. A thread beyond the last row or column of C computes that row or column once more, and
// stores nothing; where k is no multiple of DEPTH, the first tile begins before the matrices and has zeros there.
//
// TILE_M, TILE_N: height and width of a block's tile of C; WARP_N: width of a warp's, which is 64 high; DEPTH: of the
// tiles of A and B; STAGES: tiles of each in shared memory; WIDTH: floats to a copy of B, 4 where all its rows begin at
// a multiple of 16 bytes.
#include <cuda_pipeline.h>

// The 32 lanes of a warp lie 8 down and 4 across; each has its elements of C in groups of 4 x 4.
constexpr int warp_m = 64;
constexpr int rows = warp_m / 8;
constexpr int columns = WARP_N / 4;
constexpr int threads = (TILE_M / warp_m) * (TILE_N / WARP_N) * 32;
constexpr int blocks = 32768 / (threads * rows * columns);  // on a multiprocessor: half its registers are for sums

constexpr int a_stride = TILE_M + 4;  // what a warp copies at once, 4 rows of 8, goes to 32 different banks
constexpr int a_floats = DEPTH * a_stride;
constexpr int stage = a_floats + DEPTH * TILE_N;

// A thread copies A float by float, 8 neighbours of a row beside one another, and B in pieces of WIDTH floats.
constexpr int a_down = threads / 8;
constexpr int a_copies = TILE_M / a_down * (DEPTH / 8);
constexpr int b_down = threads * WIDTH / TILE_N;
static_assert(DEPTH % 8 == 0 && TILE_M % a_down == 0 && DEPTH % b_down == 0, "every thread makes as many copies");

__device__ float4 four(const float *floats) { return *reinterpret_cast<const float4 *>(floats); }

extern "C" __global__ void __launch_bounds__(threads, blocks)
matmul_pipelined(float *C, const float *A, const float *B, int m, int n, int k) {
    extern __shared__ float4 aligned[];
    float *const shared = reinterpret_cast<float *>(aligned);
    const int top = blockIdx.y * TILE_M;
    const int left = blockIdx.x * TILE_N;
    const int tiles = (k + DEPTH - 1) / DEPTH;
    const int missing = tiles * DEPTH - k;  // of the first tile's depth

    // Copies from global memory, to a stage that goes round.
    const int a_deep = threadIdx.x % 8;
    const int a_row = threadIdx.x / 8;
    const int b_deep = threadIdx.x / (TILE_N / WIDTH);
    const int b_column = threadIdx.x % (TILE_N / WIDTH) * WIDTH;
    int a_rows[TILE_M / a_down];
#pragma unroll
    for (int i = 0; i < TILE_M / a_down; ++i) {
        a_rows[i] = min(top + a_row + i * a_down, m - 1) * k;
    }
    const float *a_from = A + (a_deep - missing);
    const float *b_from = B + ((b_deep - missing) * n + min(left + b_column, n - WIDTH));
    float *const a_to = shared + a_deep * a_stride + a_row;
    float *const b_to = shared + a_floats + b_deep * TILE_N + b_column;
    int filled = 0;

    auto copy_tile = [&](bool first) {
#pragma unroll
        for (int i = 0; i < a_copies; ++i) {
            const int row = i % (TILE_M / a_down);
            const int deep = i / (TILE_M / a_down) * 8;
            __pipeline_memcpy_async(a_to + filled + deep * a_stride + row * a_down, a_from + a_rows[row] + deep,
                                    sizeof(float), first && a_deep + deep < missing ? sizeof(float) : 0);
        }
#pragma unroll
        for (int deep = 0; deep < DEPTH; deep += b_down) {
            __pipeline_memcpy_async(b_to + filled + deep * TILE_N, b_from + deep * n, WIDTH * sizeof(float),
                                    first && b_deep + deep < missing ? WIDTH * sizeof(float) : 0);
        }
        a_from += DEPTH;
        b_from += DEPTH * n;
        filled = filled == (STAGES - 1) * stage ? 0 : filled + stage;
    };

    // Lanes 0 and 1 have the same rows, 0 and 2 the same columns: shared memory serves such pairs at once.
    const int warp = threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    const int row = warp / (TILE_N / WARP_N) * warp_m + (lane / 2 % 2 + lane / 8 * 2) * 4;
    const int column = warp % (TILE_N / WARP_N) * WARP_N + (lane % 2 + lane / 4 % 2 * 2) * 4;
    const float *const a_at = shared + row;
    const float *const b_at = shared + a_floats + column;
    int read = 0;
    float4 a[2][rows / 4];
    float4 b[2][columns / 4];
    float sums[rows][columns] = {};

    auto load = [&](int set, int deep) {
#pragma unroll
        for (int i = 0; i < rows / 4; ++i) {
            a[set][i] = four(a_at + read + deep * a_stride + i * 32);
        }
#pragma unroll
        for (int j = 0; j < columns / 4; ++j) {
            b[set][j] = four(b_at + read + deep * TILE_N + j * 16);
        }
    };
    auto multiply = [&](int set) {
        const float *const down = reinterpret_cast<const float *>(a[set]);
        const float *const across = reinterpret_cast<const float *>(b[set]);
#pragma unroll
        for (int i = 0; i < rows; ++i) {
#pragma unroll
            for (int j = 0; j < columns; ++j) {
                sums[i][j] += down[i] * across[j];
            }
        }
    };

    copy_tile(true);
    __pipeline_commit();
#pragma unroll
    for (int tile = 1; tile < STAGES - 1; ++tile) {
        if (tile < tiles) {
            copy_tile(false);
        }
        __pipeline_commit();
    }
    __pipeline_wait_prior(STAGES - 2);
    __syncthreads();
    load(0, 0);

    for (int tile = 0; tile < tiles; ++tile) {
#pragma unroll
        for (int deep = 0; deep < DEPTH - 1; ++deep) {
            load((deep + 1) % 2, deep + 1);
            if (deep == 0) {
                // Into the stage of the tile before this one, which all threads are done with.
                if (tile + STAGES - 1 < tiles) {
                    copy_tile(false);
                }
                __pipeline_commit();
            }
            multiply(deep % 2);
        }

        // Nothing of this tile is needed any more but what the registers hold: on to the next one.
        __pipeline_wait_prior(STAGES - 2);
        __syncthreads();
        read = read == (STAGES - 1) * stage ? 0 : read + stage;
        load(0, 0);
        multiply(1);
    }

#pragma unroll
    for (int i = 0; i < rows; ++i) {
        const int down = top + row + i / 4 * 32 + i % 4;
#pragma unroll
        for (int j = 0; j < columns; j += 4) {
            const int across = left + column + j * 4;
            float *const c = C + (down * n + across);
            if (WIDTH == 4) {
                if (down < m && across < n) {
                    *reinterpret_cast<float4 *>(c) = four(&sums[i][j]);
                }
            } else {
                for (int item = 0; item < 4; ++item) {
                    if (down < m && across + item < n) {
                        c[item] = sums[i][j + item];
                    }
                }
            }
        }
    }
}
