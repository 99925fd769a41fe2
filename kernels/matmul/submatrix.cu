// Like `tiled`, written with a matrix type that knows its size and stride. Tiles have this type too.
//
// A part of a matrix has the stride of the whole matrix, so the same few functions serve both, and the kernel reads
// like a sum over tiles. All functions are inlined, so calling them costs nothing. The size of each tile is computed
// anew, which costs a little.
//
// TILE: width and height of a tile and of the block.
struct Matrix {
    float *elements;
    int rows;
    int columns;
    int stride;  // elements from one row to the next
};

// The tile with these indices, which count tiles; smaller at the edge of the matrix.
__device__ Matrix tile_of(const Matrix &matrix, int down, int across) {
    const int top = down * TILE;
    const int left = across * TILE;
    return {matrix.elements + (top * matrix.stride + left), min(matrix.rows - top, TILE),
            min(matrix.columns - left, TILE), matrix.stride};
}

__device__ bool holds(const Matrix &matrix, int row, int column) {
    return row < matrix.rows && column < matrix.columns;
}

__device__ float get(const Matrix &matrix, int row, int column) {
    return holds(matrix, row, column) ? matrix.elements[row * matrix.stride + column] : 0.0f;
}

__device__ void set(const Matrix &matrix, int row, int column, float value) {
    if (holds(matrix, row, column)) {
        matrix.elements[row * matrix.stride + column] = value;
    }
}

extern "C" __global__ void matmul_submatrix(float *C, float *A, float *B, int m, int n, int k) {
    __shared__ float a[TILE][TILE];
    __shared__ float b[TILE][TILE];
    const Matrix whole_a = {A, m, k, k};
    const Matrix whole_b = {B, k, n, n};
    const Matrix c = tile_of({C, m, n, n}, blockIdx.y, blockIdx.x);
    const int column = threadIdx.x;
    const int row = threadIdx.y;

    float sum = 0.0f;
    for (int step = 0; step * TILE < k; ++step) {
        a[row][column] = get(tile_of(whole_a, blockIdx.y, step), row, column);
        b[row][column] = get(tile_of(whole_b, step, blockIdx.x), row, column);
        __syncthreads();

        for (int i = 0; i < TILE; ++i) {
            sum += a[row][i] * b[i][column];
        }
        __syncthreads();
    }
    set(c, row, column, sum);
}
