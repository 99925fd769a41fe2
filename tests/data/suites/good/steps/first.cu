extern "C" __global__ void first() {}
extern "C" __global__ void third() {}
