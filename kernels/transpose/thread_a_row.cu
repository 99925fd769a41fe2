// Each thread moves one row of a into one column of b.
//
// The writes of a warp are neighbours. Its reads are n floats apart, each in a line of its own. A thread needs the
// rest of its line in its next 31 iterations, and finds it only if it is still in the cache. There are only n threads,
// a few thousand; a GPU needs some hundred thousand to keep its memory busy.
extern "C" __global__ void transpose_thread_a_row(float *b, const float *a, int n) {
    const int y = blockIdx.x * blockDim.x + threadIdx.x;
    if (y >= n) {
        return;
    }
    for (int x = 0; x < n; ++x) {
        b[x * n + y] = a[y * n + x];
    }
}
