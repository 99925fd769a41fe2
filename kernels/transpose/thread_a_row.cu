// Each thread moves one row of a into one column of b.
//
// The writes of a warp lie side by side. Its reads lie n apart, each in a line of its own; the thread comes back for
// the rest of that line in its next 31 rounds, as long as the cache has kept it. And there are only n threads: a few
// thousand, where a GPU needs some hundred thousand to keep its memory busy.
extern "C" __global__ void transpose_thread_a_row(float *b, const float *a, int n) {
    const int y = blockIdx.x * blockDim.x + threadIdx.x;
    if (y >= n) {
        return;
    }
    for (int x = 0; x < n; ++x) {
        b[x * n + y] = a[y * n + x];
    }
}
