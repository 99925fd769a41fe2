// Each thread computes 8 x 8 elements of C, which it keeps in registers.
//
// For each step along k, a thread loads 8 elements of A and 8 of B from shared memory, and multiplies all pairs. So 16
// loads feed 64 multiply-adds, where `tiled` needs 128 loads. Now the arithmetic limits the speed. Each thread needs
// many registers, so few threads fit on a multiprocessor. They still keep it busy, because the 64 sums of a thread do
// not wait for each other.
//
// The rows of a thread are 16 apart, and so are its columns. So the threads of a warp read neighbours in shared memory
// and write neighbours in C.
constexpr int side = 16;         // threads of the block, in each direction
constexpr int each = 8;          // rows and columns of C that a thread computes
constexpr int tile = side * each;
constexpr int depth = 8;         // of the tiles of A and B, along k
constexpr int threads = side * side;

extern "C" __global__ void __launch_bounds__(threads)
matmul_registers(float *C, const float *A, const float *B, int m, int n, int k) {
    __shared__ float a[tile][depth];
    __shared__ float b[depth][tile];
    const int top = blockIdx.y * tile;
    const int left = blockIdx.x * tile;
    const int x = threadIdx.x % side;
    const int y = threadIdx.x / side;

    float sums[each][each] = {};
    for (int start = 0; start < k; start += depth) {
        for (int item = threadIdx.x; item < tile * depth; item += threads) {
            const int row = top + item / depth;
            const int across = start + item % depth;
            a[item / depth][item % depth] = row < m && across < k ? A[row * k + across] : 0.0f;

            const int down = start + item / tile;
            const int column = left + item % tile;
            b[item / tile][item % tile] = down < k && column < n ? B[down * n + column] : 0.0f;
        }
        __syncthreads();

        for (int i = 0; i < depth; ++i) {
            float down[each];
            float across[each];
            for (int item = 0; item < each; ++item) {
                down[item] = a[y + item * side][i];
                across[item] = b[i][x + item * side];
            }
            for (int row = 0; row < each; ++row) {
                for (int column = 0; column < each; ++column) {
                    sums[row][column] += down[row] * across[column];
                }
            }
        }
        __syncthreads();
    }

    for (int i = 0; i < each; ++i) {
        for (int j = 0; j < each; ++j) {
            const int row = top + y + i * side;
            const int column = left + x + j * side;
            if (row < m && column < n) {
                C[row * n + column] = sums[i][j];
            }
        }
    }
}
