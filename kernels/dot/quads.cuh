// The loop of one thread in the float4 variants. An iteration loads ITEMS float4 of each vector; the threads of a
// block load neighbouring float4.
//
// All 2 * ITEMS loads stand before the first addition, so they are in flight together if there are enough registers.
// After the last full iteration, the remaining float4 are loaded one at a time. The first block adds the up to three
// elements after the last float4. Arrays start at 16-byte boundaries.
//
// BLOCK: threads of a block. ITEMS: float4 of each vector that a thread loads before it adds.
template <typename Add>
__device__ void add_quad(float4 x, float4 y, Add add) {
    add(0, x.x, y.x);
    add(1, x.y, y.y);
    add(2, x.z, y.z);
    add(3, x.w, y.w);
}

// Calls add(i, element of a, element of b) for each element of this thread. i is 0 to 3: the caller keeps four sums, so
// that no addition waits for the one before.
template <typename Add>
__device__ void for_each_pair(const float *a, const float *b, int n, Add add) {
    const float4 *as = reinterpret_cast<const float4 *>(a);
    const float4 *bs = reinterpret_cast<const float4 *>(b);
    const int quads = n / 4;
    const int stride = gridDim.x * BLOCK * ITEMS;

    int i = blockIdx.x * BLOCK * ITEMS + threadIdx.x;
#pragma unroll 1
    for (; i + (ITEMS - 1) * BLOCK < quads; i += stride) {
        float4 x[ITEMS];
        float4 y[ITEMS];
#pragma unroll
        for (int item = 0; item < ITEMS; ++item) {
            x[item] = as[i + item * BLOCK];
            y[item] = bs[i + item * BLOCK];
        }
#pragma unroll
        for (int item = 0; item < ITEMS; ++item) {
            add_quad(x[item], y[item], add);
        }
    }
#pragma unroll 1
    for (; i < quads; i += BLOCK) {
        add_quad(as[i], bs[i], add);
    }

    const int last = 4 * quads + blockIdx.x * BLOCK + threadIdx.x;
    if (last < n) {
        add(0, a[last], b[last]);
    }
}
