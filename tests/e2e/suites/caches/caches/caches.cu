extern "C" __global__ void fill(float* out) {
    for (int i = 0; i < 4; ++i) out[i] = 1.0f;
}
