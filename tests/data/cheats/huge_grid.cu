extern "C" __global__ void total(const float* __restrict__ x, float* out, int n) {
  // Two thousand million blocks, each of which does something.
  if (threadIdx.x == 0) atomicAdd(out, x[blockIdx.x % n]);
}
