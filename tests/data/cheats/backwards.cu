extern "C" __global__ void saxpy(const float* __restrict__ x, float* y, float a, int n) {
  // From the end to the start, in three-dimensional blocks.
  const int t = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  const int i = n - 1 - (int)(blockIdx.x * 96 + t);
  if (i >= 0) y[i] += a * x[i];
}
