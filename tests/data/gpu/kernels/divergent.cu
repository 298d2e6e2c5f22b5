// Each lane takes its own path of a different length.
extern "C" __global__ void k(const float* __restrict__ x, float* __restrict__ y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float v = x[i];
  const int lane = threadIdx.x % 32;
  for (int j = 0; j < 40 * lane; j++) v = v * 1.0001f + (j & 1 ? 0.5f : -0.5f);
  y[i] = v == 0.12345f ? v : 2 * x[i];
}
