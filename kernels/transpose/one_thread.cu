// One thread moves the whole matrix, element by element.
//
// This is the loop that a CPU would run. A GPU hides the wait for memory by running other threads meanwhile, and here
// there is none: nearly all of the time is waiting, and all multiprocessors but one are idle.
extern "C" __global__ void transpose_one_thread(float *b, const float *a, int n) {
    for (int y = 0; y < n; ++y) {
        for (int x = 0; x < n; ++x) {
            b[x * n + y] = a[y * n + x];
        }
    }
}
