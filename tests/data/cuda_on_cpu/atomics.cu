extern "C" __global__ void histogram(const int* in, unsigned* bins, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&bins[in[i]], 1u);
}

extern "C" __global__ void every(int* ints, unsigned* unsigneds, unsigned long long* longs, float* floats, double* doubles) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  atomicAdd(&ints[0], i);
  atomicSub(&ints[1], 1);
  atomicMin(&ints[2], -i);
  atomicMax(&ints[3], i);
  atomicOr(&unsigneds[0], 1u << (i % 32));
  atomicAnd(&unsigneds[1], ~(1u << (i % 31)));
  atomicXor(&unsigneds[2], (unsigned)i);
  atomicInc(&unsigneds[3], 9u);
  atomicDec(&unsigneds[4], 9u);
  atomicAdd(&longs[0], 1ull << 33);
  atomicMax(&longs[1], (unsigned long long)i << 40);
  atomicAdd(&floats[0], 1.0f);
  atomicAdd_block(&doubles[0], 0.5);
  while (true) {
    unsigned long long seen = longs[2];
    if (atomicCAS(&longs[2], seen, seen + 2) == seen) break;
  }
  if (i == 7) atomicExch(&floats[1], 7.0f);
}

__device__ unsigned finished;

// The last block adds up what the others left.
extern "C" __global__ void last_block_sums(const float* in, float* partial, float* out) {
  if (threadIdx.x == 0) {
    partial[blockIdx.x] = in[blockIdx.x];
    __threadfence();
    if (atomicInc(&finished, gridDim.x - 1) == gridDim.x - 1) {
      float sum = 0;
      for (unsigned b = 0; b < gridDim.x; ++b) sum += partial[b];
      out[0] = sum;
    }
  }
}
