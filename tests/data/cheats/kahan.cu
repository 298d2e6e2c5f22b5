// Compensated summation: more operations than the plain sum, fewer errors.
extern "C" __global__ void clear(float* out) { out[0] = 0.0f; }

extern "C" __global__ void total(const float* __restrict__ x, float* out, int n) {
  float mine = 0.0f, lost = 0.0f;
  for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256) {
    const float term = __fsub_rn(x[i], lost), next = __fadd_rn(mine, term);
    lost = __fsub_rn(__fsub_rn(next, mine), term);
    mine = next;
  }
  for (int step = 16; step > 0; step /= 2) mine += __shfl_down_sync(0xffffffffu, mine, step);
  if (threadIdx.x % 32 == 0) atomicAdd(out, mine);
}
