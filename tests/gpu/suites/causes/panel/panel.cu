// C = ROUNDS times A B^T for many pairs of 128 x 64 bfloat16, by the tensor cores from shared memory.
//
// A warp computes 64 x 64 of C. AHEAD: 1 loads the fragments of the next step before the products of this step; with 0,
// the tensor cores wait until the fragments are there.
#define SIDE 128
#define DEPTH 64
#define ROW (DEPTH + 8) // 8 rows begin in different banks
#define PARTS 4

typedef unsigned short bfloat16;

struct Fragments {
    unsigned a[PARTS][4], b[PARTS][4];
};

__device__ void load_16_x_16(unsigned (&part)[4], const bfloat16 *from) {
    const unsigned address = (unsigned)__cvta_generic_to_shared(from);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(part[0]), "=r"(part[1]), "=r"(part[2]), "=r"(part[3])
                 : "r"(address));
}

__device__ void load(Fragments &next, const bfloat16 *a, const bfloat16 *b) {
#pragma unroll
    for (int i = 0; i < PARTS; ++i) {
        load_16_x_16(next.a[i], a + 16 * i * ROW);
        load_16_x_16(next.b[i], b + 16 * i * ROW);
    }
}

__device__ void multiply(float (&sum)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

extern "C" __global__ void __launch_bounds__(128) panel(float *C, const bfloat16 *A, const bfloat16 *B) {
    __shared__ bfloat16 a[SIDE * ROW], b[SIDE * ROW];
    for (int at = threadIdx.x; at < SIDE * DEPTH; at += blockDim.x) {
        a[at / DEPTH * ROW + at % DEPTH] = A[blockIdx.x * SIDE * DEPTH + at];
        b[at / DEPTH * ROW + at % DEPTH] = B[blockIdx.x * SIDE * DEPTH + at];
    }
    __syncthreads();
    const int lane = threadIdx.x % 32, row = threadIdx.x / 64 * 64, column = threadIdx.x / 32 % 2 * 64;
    const bfloat16 *const of_a = a + (row + lane % 16) * ROW + lane / 16 * 8;
    const bfloat16 *const of_b = b + (column + lane % 8 + lane / 16 * 8) * ROW + lane / 8 % 2 * 8;
    float sums[PARTS][2 * PARTS][4] = {};
    Fragments now, next;
#if AHEAD
    load(next, of_a, of_b);
#endif
#pragma unroll 1
    for (int step = 0; step < ROUNDS * DEPTH / 16; ++step) {
#if AHEAD
        now = next;
        load(next, of_a + (step + 1) * 16 % DEPTH, of_b + (step + 1) * 16 % DEPTH);
#else
        load(now, of_a + step * 16 % DEPTH, of_b + step * 16 % DEPTH);
#endif
#pragma unroll
        for (int i = 0; i < PARTS; ++i) {
#pragma unroll
            for (int j = 0; j < 2 * PARTS; ++j) {
                multiply(sums[i][j], now.a[i], now.b[j / 2][j % 2 * 2], now.b[j / 2][j % 2 * 2 + 1]);
            }
        }
    }
    float *const block = C + blockIdx.x * SIDE * SIDE + (row + lane / 4) * SIDE + column + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < PARTS; ++i) {
#pragma unroll
        for (int j = 0; j < 2 * PARTS; ++j) {
#pragma unroll
            for (int k = 0; k < 4; ++k) {
                block[(16 * i + k / 2 * 8) * SIDE + 8 * j + k % 2] = sums[i][j][k];
            }
        }
    }
}
