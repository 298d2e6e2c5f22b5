// More than half of the blocks have nothing to do and leave at once.
extern "C" __global__ void clear(float* out) { out[0] = 0.0f; }

extern "C" __global__ void total(const float* __restrict__ x, float* out, int n) {
  const int active = (gridDim.x - 3) / 2;
  if (blockIdx.x >= active) return;
  float mine = 0.0f;
  for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += active * 256) mine += x[i];
  for (int step = 16; step > 0; step /= 2) mine += __shfl_down_sync(0xffffffffu, mine, step);
  if (threadIdx.x % 32 == 0) atomicAdd(out, mine);
}
