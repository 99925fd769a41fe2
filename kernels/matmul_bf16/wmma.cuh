// Code of all wmma variants. A block of 8 warps computes a tile of 128x128 of C = A B^T (A is m x k, B is n x k) from
// tiles of A and B in shared memory. Each warp computes 32x64 elements, in fragments of 16x16 that its 32 threads hold
// together.
//
// The rows of both matrices lie along k. For A, wmma calls this layout "row-major". B is read as the transpose of a
// row-major tile, which wmma calls "column-major".
//
// TF32: 1 for floats, of which the tensor cores use 10 bits of the mantissa; 0 for bfloat16.
#pragma once

#include <cuda_bf16.h>
#include <mma.h>

#if TF32
using Element = float;
using Factor = nvcuda::wmma::precision::tf32;
#else
using Element = __nv_bfloat16;
using Factor = Element;
#endif

constexpr int THREADS = 256;
constexpr int TILE = 128;                                  // rows and columns of C that a block computes
constexpr int DEPTH = 64 / sizeof(Element);                // elements of a tile along k: 64 bytes
constexpr int VECTOR = 16 / sizeof(Element);               // elements in 16 bytes
constexpr int PITCH = DEPTH + VECTOR;                      // 80 bytes: 16 bytes of eight rows lie in 32 banks
constexpr int FRAGMENT = 16;                               // rows and columns of a fragment of C
constexpr int FRAGMENT_DEPTH = 32 / sizeof(Element);       // 8 for TF32, 16 for bfloat16

struct __align__(32) Tile {
    Element of[TILE][PITCH];
};

// The part of the tile of C that a warp computes.
class WarpSums {
  public:
    __device__ WarpSums() {
        for (auto &row : sums) {
            for (auto &sum : row) {
                nvcuda::wmma::fill_fragment(sum, 0.0f);
            }
        }
    }

    __device__ void add_products(const Tile &a, const Tile &b) {
        using namespace nvcuda::wmma;
#pragma unroll
        for (int k = 0; k < DEPTH; k += FRAGMENT_DEPTH) {
            fragment<matrix_a, FRAGMENT, FRAGMENT, FRAGMENT_DEPTH, Factor, row_major> rows[2];
            fragment<matrix_b, FRAGMENT, FRAGMENT, FRAGMENT_DEPTH, Factor, col_major> columns[4];
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                load_matrix_sync(rows[i], &a.of[top() + FRAGMENT * i][k], PITCH);
                round(rows[i]);
            }
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                load_matrix_sync(columns[j], &b.of[left() + FRAGMENT * j][k], PITCH);
                round(columns[j]);
            }
#pragma unroll
            for (int i = 0; i < 2; ++i) {
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    mma_sync(sums[i][j], rows[i], columns[j], sums[i][j]);
                }
            }
        }
    }

    // A fragment cannot be stored in part. It goes to shared memory, and its elements inside C are stored from there.
    __device__ void store(float *C, int first_row, int first_column, int m, int n) const {
        __shared__ __align__(32) float patches[THREADS / 32][FRAGMENT][FRAGMENT];
        auto &patch = patches[threadIdx.x / 32];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                nvcuda::wmma::store_matrix_sync(&patch[0][0], sums[i][j], FRAGMENT, nvcuda::wmma::mem_row_major);
                __syncwarp();
                for (int at = threadIdx.x % 32; at < FRAGMENT * FRAGMENT; at += 32) {
                    const int row = first_row + top() + FRAGMENT * i + at / FRAGMENT;
                    const int column = first_column + left() + FRAGMENT * j + at % FRAGMENT;
                    if (row < m && column < n) {
                        C[row * n + column] = patch[at / FRAGMENT][at % FRAGMENT];
                    }
                }
                __syncwarp();
            }
        }
    }

  private:
    __device__ static int top() { return threadIdx.x / 64 * 32; }
    __device__ static int left() { return threadIdx.x / 32 % 2 * 64; }

    // Without this rounding, the tensor cores would truncate each float to TF32.
    template <typename Fragment>
    __device__ static void round(Fragment &factors) {
#if TF32
#pragma unroll
        for (int i = 0; i < Fragment::num_elements; ++i) {
            factors.x[i] = nvcuda::wmma::__float_to_tf32(factors.x[i]);
        }
#endif
    }

    nvcuda::wmma::fragment<nvcuda::wmma::accumulator, FRAGMENT, FRAGMENT, FRAGMENT_DEPTH, float> sums[2][4];
};
