// The weight of each hexadecimal digit, the sum over its places: added in shared memory, or straight in global memory.
//
// A place weighs at least 2, because a GPU adds ones of many threads at once.
// COPIES: copies of the sums that a block keeps in shared memory; with 32, each lane of a warp has a copy of its own.

__device__ int digit(unsigned word, int place) { return word >> 4 * place & 15; }

__device__ unsigned weight(int place) { return place + 2; }

extern "C" __global__ void shared_weights(unsigned *weights, const unsigned *words, int n) {
    __shared__ unsigned mine[KEYS * COPIES];
    for (int at = threadIdx.x; at < KEYS * COPIES; at += blockDim.x) {
        mine[at] = 0;
    }
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        const unsigned word = words[i];
        for (int place = 0; place < 8; ++place) {
            atomicAdd(&mine[digit(word, place) * COPIES + threadIdx.x % COPIES], weight(place));
        }
    }
    __syncthreads();
    for (int key = threadIdx.x; key < KEYS; key += blockDim.x) {
        unsigned sum = 0;
        for (int copy = 0; copy < COPIES; ++copy) {
            sum += mine[key * COPIES + (copy + key) % COPIES];  // neighbours read different banks
        }
        if (sum) {
            atomicAdd(&weights[key], sum);
        }
    }
}

extern "C" __global__ void global_weights(unsigned *weights, const unsigned *words, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        const unsigned word = words[i];
        for (int place = 0; place < 8; ++place) {
            atomicAdd(&weights[digit(word, place)], weight(place));
        }
    }
}
