// Like `registers`, but tiles are copied from global memory while the block multiplies others, and a load reads four
// floats.
//
// - Tiles are copied directly to shared memory (cp.async), STAGES - 1 tiles ahead. So each tile has arrived before it
//   is needed, and no register holds elements that are being copied.
// - The tile of A is transposed in shared memory, so one load of 16 bytes reads four of its rows, as it reads four
//   columns of B. Each thread computes 8 x 8 elements of C, so 4 loads feed 64 multiply-adds. With more elements, a
//   thread would need fewer loads, but so many registers that only half as many warps fit. On an H100, 8 x 16 elements
//   or wider tiles gained almost nothing, and were much slower for small matrices.
// - The operands of the next step are loaded into a second set of registers before the multiply-adds of this step.
//
// Each scheduler of a multiprocessor starts one instruction in each cycle, which can be a multiply-add. Any other
// instruction takes the place of a multiply-add. With the measures above, nine of ten instructions are multiply-adds.
//
// The height of the tiles depends on the matrix. If C has fewer tiles of height 128 than the GPU has multiprocessors,
// some multiprocessors would have no work. With tiles of height 64, twice as many multiprocessors work.
//
// Edges cost almost nothing. A thread beyond the last row or column of C computes that row or column again, and stores
// nothing. If k is not a multiple of DEPTH, the first tile begins before the matrices, and has zeros there.
//
// TILE_M, TILE_N: height and width of a block's tile of C; WARP_N: width of a warp's part of it, which is 64 high;
// DEPTH: of the tiles of A and B, along k; STAGES: tiles of A and of B in shared memory; WIDTH: floats in one copy of
// B, 4 if all its rows begin at a multiple of 16 bytes.
#include <cuda_pipeline.h>

// The 32 lanes of a warp cover its part of C with 8 lanes down and 4 across. Each lane has groups of 4 x 4 elements.
constexpr int warp_m = 64;
constexpr int rows = warp_m / 8;
constexpr int columns = WARP_N / 4;
constexpr int threads = (TILE_M / warp_m) * (TILE_N / WARP_N) * 32;
constexpr int blocks = 32768 / (threads * rows * columns);  // on a multiprocessor, with half its registers for sums

constexpr int a_stride = TILE_M + 4;  // a warp copies 4 rows of 8 floats at once, to 32 banks
constexpr int a_floats = DEPTH * a_stride;
constexpr int stage = a_floats + DEPTH * TILE_N;

// Each thread copies single floats of A, with 8 neighbouring threads in one row, and WIDTH floats of B at a time.
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
    const int missing = tiles * DEPTH - k;  // how much of the first tile lies before the matrices, along k

    // Copies from global memory, to each stage in turn.
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

    // Lanes 0 and 1 have the same rows, lanes 0 and 2 the same columns. One access of shared memory serves both.
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
                // The copy replaces the previous tile, which no thread reads any more.
                if (tile + STAGES - 1 < tiles) {
                    copy_tile(false);
                }
                __pipeline_commit();
            }
            multiply(deep % 2);
        }

        // The registers hold all that is still needed of this tile, so the next tile can begin.
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
