// The coefficients are arguments of the kernel.
//
// Arguments lie in constant memory too, so the host need not fill a symbol first. A thread cannot select an argument
// by an index: the compiler would first copy all arguments to an array in the thread's local memory. So each thread
// loads all 32 coefficients, and keeps the eight of its piece. The time does not depend on the pieces that the threads
// of a warp need. It is longer than with `constant` and `global`.
//
// An array in a struct that is passed by value as `const __grid_constant__` can be indexed, and is as fast as
// `constant`. perfsvc passes only numbers and arrays, so this kernel takes 32 numbers.
__device__ float choose(int piece, float a, float b, float c, float d) {
    return piece < 2 ? (piece == 0 ? a : b) : (piece == 2 ? c : d);
}

extern "C" __global__ void constant_memory_argument(
    float *y, const float *x,
    float a0, float a1, float a2, float a3, float a4, float a5, float a6, float a7,
    float b0, float b1, float b2, float b3, float b4, float b5, float b6, float b7,
    float c0, float c1, float c2, float c3, float c4, float c5, float c6, float c7,
    float d0, float d1, float d2, float d3, float d4, float d5, float d6, float d7,
    int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) {
        return;
    }
    const float place = x[i] * 4;
    const int piece = static_cast<int>(place);
    const float t = place - piece;

    float sum = choose(piece, a7, b7, c7, d7);
    sum = sum * t + choose(piece, a6, b6, c6, d6);
    sum = sum * t + choose(piece, a5, b5, c5, d5);
    sum = sum * t + choose(piece, a4, b4, c4, d4);
    sum = sum * t + choose(piece, a3, b3, c3, d3);
    sum = sum * t + choose(piece, a2, b2, c2, d2);
    sum = sum * t + choose(piece, a1, b1, c1, d1);
    y[i] = sum * t + choose(piece, a0, b0, c0, d0);
}
