// A tile without padding whose columns still lie in 32 different banks: each row is stored in another order.
//
// Column x of row y is kept at x ^ y. Along a row and along a column that takes each of the 32 banks once. It costs one
// instruction and saves the padding: less shared memory, and rows that stay aligned, which the next variants need.
//
// ROWS: height of the block, a divisor of 32; its width is 32.
extern "C" __global__ void transpose_swizzled(float *b, const float *a, int n) {
    __shared__ float tile[32][32];
    const int left = blockIdx.x * 32;
    const int top = blockIdx.y * 32;

    for (int done = 0; done < 32; done += ROWS) {
        const int row = done + threadIdx.y;
        const int x = left + threadIdx.x;
        const int y = top + row;
        if (x < n && y < n) {
            tile[row][threadIdx.x ^ row] = a[y * n + x];
        }
    }
    __syncthreads();

    for (int done = 0; done < 32; done += ROWS) {
        const int row = done + threadIdx.y;
        const int x = top + threadIdx.x;
        const int y = left + row;
        if (x < n && y < n) {
            b[y * n + x] = tile[threadIdx.x][row ^ threadIdx.x];
        }
    }
}
