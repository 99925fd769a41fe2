// Each thread starts the loads of several float4 of both arrays before it adds the first ones.
//
// Loads that do not wait for each other keep more bytes in flight for each thread. So fewer threads keep the memory
// busy, and fewer blocks have to be started. The loads of one thread are BLOCK float4 apart, so each load of a warp
// still reads full lines.
//
// On an H100 this gains nothing. With one float4 of each array in each of its 2048 threads, a multiprocessor already
// uses its full share of the memory bandwidth. More loads only take registers. They can help a kernel that runs with
// fewer threads, because it needs many registers or much shared memory.
//
// BLOCK: threads of a block; QUADS: float4 of each array that a thread adds.
extern "C" __global__ void vector_add_float4_batch(float *c, const float *a, const float *b, int n) {
    const int first = blockIdx.x * BLOCK * QUADS + threadIdx.x;
    const int quads = n / 4;

    float4 x[QUADS], y[QUADS];
#pragma unroll
    for (int k = 0; k < QUADS; ++k) {
        if (first + k * BLOCK < quads) {
            x[k] = reinterpret_cast<const float4 *>(a)[first + k * BLOCK];
            y[k] = reinterpret_cast<const float4 *>(b)[first + k * BLOCK];
        }
    }
#pragma unroll
    for (int k = 0; k < QUADS; ++k) {
        if (first + k * BLOCK < quads) {
            reinterpret_cast<float4 *>(c)[first + k * BLOCK] =
                make_float4(x[k].x + y[k].x, x[k].y + y[k].y, x[k].z + y[k].z, x[k].w + y[k].w);
        }
    }

    const int last = 4 * quads + first;
    if (last < n) {
        c[last] = a[last] + b[last];
    }
}
