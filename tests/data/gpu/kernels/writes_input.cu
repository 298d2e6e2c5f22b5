extern "C" __global__ void k(float* x, float* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) { y[i] = 2 * x[i]; if (i == 3) x[i] = 0.0f; }
}
