// Each thread starts ITEMS loads of four elements before it adds. Then come shuffles, and one atomic addition for each
// block.
//
// The speed depends on the number of bytes in flight. Here each thread has 16 * ITEMS bytes in flight. A new block
// starts as soon as another block ends, so no multiprocessor waits for another. Atomic additions of integers give the
// same result in any order. The array starts at a 16-byte boundary. The first block adds the up to three elements
// after the last group of four.
//
// BLOCK: threads of a block, a multiple of 32. ITEMS: loads of 16 bytes that a thread starts before it adds.
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
