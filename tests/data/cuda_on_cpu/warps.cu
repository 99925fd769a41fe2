extern "C" __global__ void warp_sum(const double* in, double* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  double value = i < n ? in[i] : 0.0;
  for (int delta = warpSize / 2; delta > 0; delta /= 2) {
    double other = __shfl_down_sync(0xffffffff, value, delta);
    if (threadIdx.x % 32 + delta < min(32, (int)(blockDim.x - threadIdx.x / 32 * 32))) value += other;
  }
  if (threadIdx.x % 32 == 0) out[i / 32] = value;
}

extern "C" __global__ void shuffles(int* out, int width) {
  int lane = threadIdx.x, n = blockDim.x;
  out[lane] = __shfl_sync(~0u, lane, 5, width);
  out[n + lane] = __shfl_up_sync(~0u, lane, 3, width);
  out[2 * n + lane] = __shfl_down_sync(~0u, lane, 3, width);
  out[3 * n + lane] = __shfl_xor_sync(~0u, lane, 5, width);
}

extern "C" __global__ void wide_shuffles(long long* longs, double* doubles, float* floats, unsigned* unsigneds) {
  int lane = threadIdx.x, from = 31 - lane;
  longs[lane] = __shfl_sync(~0u, (long long)lane << 40, from);
  doubles[lane] = __shfl_sync(~0u, lane / 3.0, from);
  floats[lane] = __shfl_sync(~0u, lane / 3.0f, from);
  unsigneds[lane] = __shfl_sync(~0u, 0xffffffffu - lane, from);
}

extern "C" __global__ void votes(const int* in, unsigned* out) {
  int lane = threadIdx.x, n = blockDim.x, p = in[lane];
  out[lane] = __ballot_sync(~0u, p);
  out[n + lane] = __any_sync(~0u, p);
  out[2 * n + lane] = __all_sync(~0u, p);
  out[3 * n + lane] = __match_any_sync(~0u, p);
  out[4 * n + lane] = __reduce_add_sync(~0u, p);
  out[5 * n + lane] = __reduce_max_sync(~0u, (unsigned)p);
}

extern "C" __global__ void halves_of_a_warp(int* out) {
  int lane = threadIdx.x % 32;
  unsigned mask = lane < 16 ? 0x0000ffffu : 0xffff0000u;
  int value = threadIdx.x;
  if (lane < 16)
    for (int delta = 8; delta > 0; delta /= 2) value += __shfl_xor_sync(mask, value, delta);
  else
    for (int delta = 1; delta < 16; delta *= 2) value += __shfl_xor_sync(mask, value, delta);
  __syncwarp();
  out[threadIdx.x] = value;
}

extern "C" __global__ void active(unsigned* out, int n) {
  if (threadIdx.x >= n) return;
  out[threadIdx.x] = __activemask();
}
