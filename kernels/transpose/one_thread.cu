// One thread moves the whole matrix, element by element.
//
// This is the loop that a CPU would run. A GPU hides the wait for the memory by running other threads. Here there are
// no other threads: the thread waits nearly all of the time, and only one multiprocessor has work.
extern "C" __global__ void transpose_one_thread(float *b, const float *a, int n) {
    for (int y = 0; y < n; ++y) {
        for (int x = 0; x < n; ++x) {
            b[x * n + y] = a[y * n + x];
        }
    }
}
