// Blocks of a single warp that add in double precision.
extern "C" __global__ void clear(float* out) { out[0] = 0.0f; }

extern "C" __global__ void total(const float* __restrict__ x, float* out, int n) {
  double mine = 0.0;
  for (int i = blockIdx.x * 32 + threadIdx.x; i < n; i += gridDim.x * 32) mine += x[i];
  for (int step = 16; step > 0; step /= 2) mine += __shfl_down_sync(0xffffffffu, mine, step);
  if (threadIdx.x == 0) atomicAdd(out, (float)mine);
}
