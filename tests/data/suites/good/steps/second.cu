extern "C" __global__ void second() {}
