// One thread adds all elements, as a program for a CPU would.
//
// A GPU can run a quarter of a million threads at the same time, and each thread alone is slow. It waits for the
// memory at every access, and no other thread uses the waiting time.
extern "C" __global__ void cubes_one_thread(unsigned int *sum, const unsigned int *a, int n) {
    unsigned int total = 0;
    for (int i = 0; i < n; ++i) {
        total += a[i] * a[i] * a[i];
    }
    *sum = total;
}
