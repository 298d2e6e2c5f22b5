// Correct: but without histograms in shared memory.
extern "C" __global__ void clear(unsigned* out) { out[threadIdx.x] = 0; }

extern "C" __global__ void count(const unsigned char* __restrict__ x, unsigned* out, int n) {
  for (int i = 0; i < 4; i++) {
    const int at = blockIdx.x * 1024 + i * 256 + threadIdx.x;
    if (at < n) atomicAdd(out + x[at], 1u);
  }
}
