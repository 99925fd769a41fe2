// Sorts, and ends when nothing moved.
__device__ void sort(int* x, int n) {
    for (bool moved = true; moved;) {
        moved = false;
        for (int i = 0; i + 1 < n; ++i) {
            const int left = x[i], right = x[i + 1];
            if (left > right) {
                x[i] = right, x[i + 1] = left, moved = true;
            }
        }
    }
}

extern "C" __global__ void in_place(int* x, int n) { sort(x, n); }

extern "C" __global__ void copied(int* y, const int* x, int n) {
    for (int i = 0; i < n; ++i) y[i] = x[i];
    sort(y, n);
}
