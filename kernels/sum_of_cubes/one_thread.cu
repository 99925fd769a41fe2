// One thread does it all, as a program for a CPU would.
//
// A GPU has room for a quarter of a million threads, and each alone is slow: it waits for the memory at every
// access, and no other thread uses the time.
extern "C" __global__ void cubes_one_thread(unsigned int *sum, const unsigned int *a, int n) {
    unsigned int total = 0;
    for (int i = 0; i < n; ++i) {
        total += a[i] * a[i] * a[i];
    }
    *sum = total;
}
