// ITEMS loads of four elements each before a thread adds up any; then shuffles, and one atomic addition a block.
//
// What decides is how many bytes are under way, and here each thread has 16 * ITEMS. A block that is through with its
// share makes room for the next one, so that no multiprocessor waits for another. Atomic additions of integers come to
// the same in any order, however many there are. The buffer starts at a 16-byte boundary; the up to three elements left
// over go to the first block.
//
// BLOCK: threads of a block, a multiple of 32. ITEMS: loads of 16 bytes that a thread has under way.
__device__ unsigned int cube(unsigned int x) {
    return x * x * x;
}

extern "C" __global__ void cubes_uint4(unsigned int *sum, const unsigned int *a, int n) {
    const uint4 *as = reinterpret_cast<const uint4 *>(a);
    const int quads = n / 4;
    const int first = blockIdx.x * BLOCK * ITEMS + threadIdx.x;

    uint4 x[ITEMS];
#pragma unroll
    for (int item = 0; item < ITEMS; ++item) {
        const int i = first + item * BLOCK;
        x[item] = i < quads ? as[i] : make_uint4(0, 0, 0, 0);
    }

    unsigned int mine = 0;
#pragma unroll
    for (int item = 0; item < ITEMS; ++item) {
        mine += cube(x[item].x) + cube(x[item].y) + cube(x[item].z) + cube(x[item].w);
    }
    const int last = 4 * quads + blockIdx.x * BLOCK + threadIdx.x;
    if (last < n) {
        mine += cube(a[last]);
    }

    for (int offset = 16; offset > 0; offset /= 2) {
        mine += __shfl_down_sync(0xffffffff, mine, offset);
    }
    __shared__ unsigned int sums[BLOCK / 32];
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    if (lane == 0) {
        sums[warp] = mine;
    }
    __syncthreads();

    if (warp == 0) {
        mine = lane < BLOCK / 32 ? sums[lane] : 0;
        for (int offset = 16; offset > 0; offset /= 2) {
            mine += __shfl_down_sync(0xffffffff, mine, offset);
        }
        if (lane == 0) {
            atomicAdd(sum, mine);
        }
    }
}
