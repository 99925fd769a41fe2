// A square of 4 x 4 floats in the registers of one thread, and functions that move four floats at once.
//
// If n is a multiple of 4, rows of n floats are aligned for float4. Otherwise the four floats are moved one by one,
// which is slower. Elements outside the matrix are neither read nor written.
__device__ inline float4 load_four(const float *matrix, int row, int column, int n) {
    float4 four = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (row >= n || column >= n) {
        return four;
    }
    const float *from = matrix + row * n + column;
    if (n % 4 == 0) {
        return *reinterpret_cast<const float4 *>(from);
    }
    four.x = from[0];
    if (column + 1 < n) four.y = from[1];
    if (column + 2 < n) four.z = from[2];
    if (column + 3 < n) four.w = from[3];
    return four;
}

__device__ inline void store_four(float *matrix, int row, int column, int n, float4 four) {
    if (row >= n || column >= n) {
        return;
    }
    float *to = matrix + row * n + column;
    if (n % 4 == 0) {
        *reinterpret_cast<float4 *>(to) = four;
        return;
    }
    to[0] = four.x;
    if (column + 1 < n) to[1] = four.y;
    if (column + 2 < n) to[2] = four.z;
    if (column + 3 < n) to[3] = four.w;
}

struct Square {
    float4 rows[4];
};

__device__ inline Square load_square(const float *matrix, int row, int column, int n) {
    Square square;
    for (int i = 0; i < 4; ++i) {
        square.rows[i] = load_four(matrix, row + i, column, n);
    }
    return square;
}

// The transposed square. This takes no instruction: the compiler only renames registers.
__device__ inline Square turned(Square of) {
    return {
        make_float4(of.rows[0].x, of.rows[1].x, of.rows[2].x, of.rows[3].x),
        make_float4(of.rows[0].y, of.rows[1].y, of.rows[2].y, of.rows[3].y),
        make_float4(of.rows[0].z, of.rows[1].z, of.rows[2].z, of.rows[3].z),
        make_float4(of.rows[0].w, of.rows[1].w, of.rows[2].w, of.rows[3].w),
    };
}
