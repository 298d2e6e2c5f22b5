// y = 2 x, four floats a thread: coalesced, nothing to mend.
extern "C" __global__ void k(const float* __restrict__ x, float* __restrict__ y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (4 * i + 3 < n) {
    float4 v = reinterpret_cast<const float4*>(x)[i];
    v.x *= 2; v.y *= 2; v.z *= 2; v.w *= 2;
    reinterpret_cast<float4*>(y)[i] = v;
  } else {
    for (int j = 4 * i; j < n; j++) y[j] = 2 * x[j];
  }
}
