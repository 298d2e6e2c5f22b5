// 1,007 blocks of 96 threads: nothing is a power of two.
extern "C" __global__ void clear(float* out) { out[0] = 0.0f; }
extern "C" __global__ void total(const float* __restrict__ x, float* out, int n) {
  float mine = 0.0f;
  for (int i = blockIdx.x * 96 + threadIdx.x; i < n; i += 1007 * 96) mine += x[i];
  for (int step = 16; step > 0; step /= 2) mine += __shfl_xor_sync(0xffffffffu, mine, step);
  if (threadIdx.x % 32 == 0) atomicAdd(out, mine);
}
