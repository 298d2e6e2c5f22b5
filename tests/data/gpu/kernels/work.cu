// y = 2 x after STEPS dependent operations: a kernel whose time is set by STEPS.
extern "C" __global__ void k(const float* __restrict__ x, float* __restrict__ y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float v = x[i];
#pragma unroll 8
  for (int j = 0; j < STEPS; j++) v = fmaf(v, 0.999f, 0.001f);
  y[i] = v == 0.12345f ? v : 2 * x[i];
}
