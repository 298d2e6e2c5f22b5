extern "C" __global__ void k(const float* x, float* y, int n) {
  if (threadIdx.x == 7) asm volatile("trap;");
  if (threadIdx.x < n) y[threadIdx.x] = 2 * x[threadIdx.x];
}
