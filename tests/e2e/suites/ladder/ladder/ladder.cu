// Doubles or copies n floats; FACTOR says which. Each block counts the elements that it wrote.
extern "C" __global__ void times(float *y, const float *x, long long *written, int n) {
    long long mine = 0;
    for (int i = blockIdx.x * BLOCK; i < min(n, static_cast<int>((blockIdx.x + 1) * BLOCK)); ++i) {
        y[i] = FACTOR * x[i];
        ++mine;
    }
    written[blockIdx.x] = mine;
}
