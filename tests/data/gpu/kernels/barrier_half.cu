extern "C" __global__ void k(const float* x, float* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (threadIdx.x % 32 < 16) __syncthreads();
  if (i < n) y[i] = 2 * x[i];
}
