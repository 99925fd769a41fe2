// Adds a value over all threads of a block; thread 0 gets the sum. Shuffles add the values of each warp, and then the
// sums of the warps.
//
// BLOCK: threads of the block, a multiple of 32 up to 1024.
template <typename T>
__device__ T warp_sum(T value) {
    for (int offset = 16; offset > 0; offset /= 2) {
        value += __shfl_down_sync(0xffffffff, value, offset);
    }
    return value;
}

template <typename T>
__device__ T block_sum(T value) {
    __shared__ T sums[BLOCK / 32];
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;

    value = warp_sum(value);
    if (lane == 0) {
        sums[warp] = value;
    }
    __syncthreads();
    return warp == 0 ? warp_sum(lane < BLOCK / 32 ? sums[lane] : T(0)) : T(0);
}
