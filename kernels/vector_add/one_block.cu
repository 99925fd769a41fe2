// One block with a thread for each element.
//
// This is the simplest kernel: the number of the thread is the index of the element. It adds at most 1024 elements,
// because a block has at most 1024 threads. It uses one multiprocessor; all others have no work.
extern "C" __global__ void vector_add_one_block(float *c, const float *a, const float *b) {
    const int i = threadIdx.x;
    c[i] = a[i] + b[i];
}
