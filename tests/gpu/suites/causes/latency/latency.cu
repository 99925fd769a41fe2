// Warps that follow a chain of STEPS links, then read READS columns of a tile in shared memory, one after the other.
//
// PAD: unused ints in a row of the tile; with 0, a column lies in one single bank.
extern "C" __global__ void chase_and_read(int *ends, const int *next, int n, int links) {
    __shared__ int tile[32][32 + PAD];
    for (int at = threadIdx.x; at < 32 * 32; at += blockDim.x) {
        tile[at / 32][at % 32] = (at / 32 + at) % 32;
    }
    __syncthreads();
    const int warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (warp < n) {
        int at = warp % links;
#pragma unroll 1
        for (int step = 0; step < STEPS; ++step) {
            at = next[at];
        }
        int column = at % 32;
#pragma unroll 1
        for (int read = 0; read < READS; ++read) {
            column = __shfl_sync(0xffffffff, tile[lane][column], column);
        }
        if (lane == 0) {
            ends[warp] = at + column;
        }
    }
}
