// One thread for each element, in as many blocks as needed.
//
// All multiprocessors work. The last block can have more threads than elements; the `if` stops these threads from
// accessing memory after the end. Starting a thread is expensive compared with its work: two loads of 4 bytes, one
// addition and one store.
extern "C" __global__ void vector_add_guarded(float *c, const float *a, const float *b, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        c[i] = a[i] + b[i];
    }
}
