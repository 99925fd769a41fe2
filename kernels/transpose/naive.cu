// Each thread moves one element from its row to its column.
//
// There are enough threads. A warp reads 32 neighbouring floats, which are one line. It writes 32 floats that are n
// floats apart, in 32 different lines. The other variants try to be faster than this one.
extern "C" __global__ void transpose_naive(float *b, const float *a, int n) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x;
    const int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < n && y < n) {
        b[x * n + y] = a[y * n + x];
    }
}
