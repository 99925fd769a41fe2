// Each thread adds four neighbouring elements with 16-byte loads and stores.
//
// A quarter of the memory instructions moves the same bytes, so each instruction keeps more bytes in flight. Arrays
// start at 16-byte boundaries. The up to three elements after the last float4 are added one by one.
extern "C" __global__ void vector_add_float4(float *c, const float *a, const float *b, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const int quads = n / 4;

    if (i < quads) {
        const float4 x = reinterpret_cast<const float4 *>(a)[i];
        const float4 y = reinterpret_cast<const float4 *>(b)[i];
        reinterpret_cast<float4 *>(c)[i] = make_float4(x.x + y.x, x.y + y.y, x.z + y.z, x.w + y.w);
    }

    const int last = 4 * quads + i;
    if (last < n) {
        c[last] = a[last] + b[last];
    }
}
