// Reads of a buffer in the L2 cache at pseudo-random places, as an independent program would write it.
//
// A block reads tiles of 4 KiB, whose numbers come from a linear congruential generator. The blocks therefore hardly ever
// read the same tile at the same time, which the cache could answer with one read.

constexpr int UNDER_WAY = 4;

extern "C" __global__ void l2_reads(double *sink, const double2 *from, int tiles, int rounds) {
    unsigned state = blockIdx.x * 2654435761u + 1;
    double sum = 0;
    for (int round = 0; round < rounds; ++round) {
        double2 taken[UNDER_WAY];
#pragma unroll
        for (int i = 0; i < UNDER_WAY; ++i) {
            state = state * 1664525u + 1013904223u;
            const long long tile = __umulhi(state, tiles);
            taken[i] = __ldcg(from + tile * blockDim.x + threadIdx.x);
        }
#pragma unroll
        for (int i = 0; i < UNDER_WAY; ++i) sum += taken[i].x * taken[i].y;
    }
    if (sum == 23.12) *sink = sum;
}
