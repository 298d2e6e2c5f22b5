extern "C" __global__ void k(const float* x, float* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (4 * i + 4 < n) reinterpret_cast<float4*>(y + 1)[i] = reinterpret_cast<const float4*>(x)[i];
}
