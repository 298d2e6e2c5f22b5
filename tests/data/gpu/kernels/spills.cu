// Far more live values than the register cap leaves room for: they go to local memory.
extern "C" __global__ void __launch_bounds__(1024, 2) k(const float* __restrict__ x, float* __restrict__ y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v[96];
#pragma unroll
  for (int j = 0; j < 96; j++) v[j] = x[(i + 37 * j) % n];
  float s = 0.0f;
#pragma unroll
  for (int r = 0; r < 3; r++)
#pragma unroll
    for (int j = 0; j < 96; j++) { v[j] = v[j] * v[(j * 7 + r) % 96] + 1.0f; s += v[j]; }
  if (i < n) y[i] = s == 0.12345f ? s : 2 * x[i];
}
