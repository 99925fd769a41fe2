// The threads of one block take a piece each, one piece after the other, and the host adds up what they leave.
//
// 256 threads wait for the memory at the same time in place of one. But all of them live on one multiprocessor, and the
// others have nothing to do.
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
