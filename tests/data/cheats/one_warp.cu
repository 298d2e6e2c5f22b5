extern "C" __global__ void total(const float* __restrict__ x, float* out, int n) {
  // A single warp does everything.
  double mine = 0.0;
  for (int i = threadIdx.x; i < n; i += 32) mine += x[i];
  for (int step = 16; step > 0; step /= 2) mine += __shfl_down_sync(0xffffffffu, mine, step);
  if (threadIdx.x == 0) out[0] = (float)mine;
}
