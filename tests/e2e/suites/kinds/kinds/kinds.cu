// Adds to what is there: partials must have been set to zero.
extern "C" __global__ void add_to_partials(float* partials, const float* a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&partials[blockIdx.x], a[i]);
}
