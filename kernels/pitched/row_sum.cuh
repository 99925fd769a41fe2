// The sum of one row, computed by one warp. rows.cu and slices.cu use it.
//
// Lane 0 gets the result.
__device__ float warp_sum(float value) {
    for (int offset = 16; offset > 0; offset /= 2) {
        value += __shfl_down_sync(0xffffffff, value, offset);
    }
    return value;
}

// Loads of 4 bytes, for rows that start at any float.
__device__ float row_sum(const float *row, int width) {
    float sum = 0.0f;
    for (int x = threadIdx.x; x < width; x += 32) {
        sum += row[x];
    }
    return warp_sum(sum);
}

// Loads of 16 bytes, for rows that start at a 16-byte boundary. The last load may include padding, which is not added.
__device__ float row_sum_float4(const float *row, int width) {
    float sum = 0.0f;
    for (int x = 4 * threadIdx.x; x < width; x += 4 * 32) {
        const float4 four = *reinterpret_cast<const float4 *>(row + x);
        sum += four.x;
        sum += x + 1 < width ? four.y : 0.0f;
        sum += x + 2 < width ? four.z : 0.0f;
        sum += x + 3 < width ? four.w : 0.0f;
    }
    return warp_sum(sum);
}
