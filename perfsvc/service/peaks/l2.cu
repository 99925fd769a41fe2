// What the L2 cache can deliver: every block reads tiles of the same buffer again and again, which fits well into the cache.
//
// The loads bypass the L1 caches (.cg). If multiprocessors read a tile at the same time, the cache may read it only once,
// and blocks that go through the tiles in the same order would find each other. So each block goes in steps of its own: an
// odd number of tiles, by which it comes to every tile, because their number is a power of two. A GPU whose cache has two
// partitions keeps a copy of the buffer in both.
#include <cstdint>

constexpr int UNDER_WAY = 2;

extern "C" __global__ void __launch_bounds__(1024) perfsvc_peak_l2(unsigned *sink, const uint4 *from, int tiles, int rounds) {
    uint4 sums = {};
    const unsigned step = 2 * blockIdx.x + 1;
    unsigned tile = blockIdx.x * 2654435761u;
#pragma unroll 1
    for (int round = 0; round < rounds; ++round) {
        uint4 taken[UNDER_WAY];
#pragma unroll
        for (int i = 0; i < UNDER_WAY; ++i) {
            taken[i] = __ldcg(from + (int64_t(tile & (tiles - 1)) << 10) + threadIdx.x);
            tile += step;
        }
#pragma unroll
        for (int i = 0; i < UNDER_WAY; ++i) {
            sums.x ^= taken[i].x;
            sums.y ^= taken[i].y;
            sums.z += taken[i].z;
            sums.w += taken[i].w;
        }
    }
    // The buffer has equal bytes: the store is only there so that no compiler leaves the loads out.
    if (sums.x == 1 && sums.y == 2 && sums.z == 3) *sink = sums.w;
}
