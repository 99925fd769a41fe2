// One block with a thread for each element.
//
// The first kernel that anyone writes: the thread's number is the element's. It ends at 1024 elements, which is all the
// threads that a block can have, and it keeps one multiprocessor busy while the others idle.
extern "C" __global__ void vector_add_one_block(float *c, const float *a, const float *b) {
    const int i = threadIdx.x;
    c[i] = a[i] + b[i];
}
