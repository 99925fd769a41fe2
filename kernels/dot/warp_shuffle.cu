// The threads of a warp add their sums by shuffles, from register to register. Only one float for each warp goes
// through shared memory.
//
// A shuffle needs no barrier and no memory, so a block has one barrier; `shared_tree` has nine. There is still one
// atomic addition for each block.
//
// BLOCK: threads of a block, a multiple of 32 up to 1024.
__device__ float warp_sum(float value) {
    for (int offset = 16; offset > 0; offset /= 2) {
        value += __shfl_down_sync(0xffffffff, value, offset);
    }
    return value;
}

extern "C" __global__ void dot_warp_shuffle(float *sum, const float *a, const float *b, int n) {
    __shared__ float sums[BLOCK / 32];

    float mine = 0.0f;
    const int stride = gridDim.x * BLOCK;
    for (int i = blockIdx.x * BLOCK + threadIdx.x; i < n; i += stride) {
        mine += a[i] * b[i];
    }

    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    mine = warp_sum(mine);
    if (lane == 0) {
        sums[warp] = mine;
    }
    __syncthreads();

    if (warp == 0) {
        mine = warp_sum(lane < BLOCK / 32 ? sums[lane] : 0.0f);
        if (lane == 0) {
            atomicAdd(sum, mine);
        }
    }
}
