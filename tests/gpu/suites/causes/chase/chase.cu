// Warps that follow links: each waits for one address after the other, and nothing but other warps hides that.
//
// All threads of a warp follow the same chain. STEPS: links of a chain; ITEMS: chains that a warp follows, one by one.
extern "C" __global__ void chase(int *ends, const int *next, int n, int links) {
    const int warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    for (int item = 0; item < ITEMS; ++item) {
        const int chain = warp * ITEMS + item;
        if (chain < n) {
            int at = chain % links;
#pragma unroll 1
            for (int step = 0; step < STEPS; ++step) {
                at = next[at];
            }
            if (threadIdx.x % 32 == 0) {
                ends[chain] = at;
            }
        }
    }
}
