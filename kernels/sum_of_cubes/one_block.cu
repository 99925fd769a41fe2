// One block. Each of its threads adds one contiguous piece of the array, and the host adds the sums of the threads.
//
// 256 threads wait for the memory at the same time, instead of one. But all of them run on one multiprocessor, and the
// other multiprocessors have no work.
//
// BLOCK: threads of the block.
extern "C" __global__ void cubes_one_block(unsigned int *partials, const unsigned int *a, int n) {
    const int piece = (n + BLOCK - 1) / BLOCK;
    const int first = threadIdx.x * piece;
    const int end = min(first + piece, n);

    unsigned int mine = 0;
    for (int i = first; i < end; ++i) {
        mine += a[i] * a[i] * a[i];
    }
    partials[threadIdx.x] = mine;
}
