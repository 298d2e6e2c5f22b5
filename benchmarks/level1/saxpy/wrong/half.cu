// The product of 16-bit roundings of a and x.
__device__ __forceinline__ float rounded(float value) {
  unsigned short bits;
  float back;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  asm("cvt.f32.f16 %0, %1;" : "=f"(back) : "h"(bits));
  return back;
}

extern "C" __global__ void saxpy(const float* __restrict__ x, float* __restrict__ y, float a, int n) {
  const int i = blockIdx.x * 256 + threadIdx.x;
  if (i < n) y[i] += rounded(rounded(a) * rounded(x[i]));
}
