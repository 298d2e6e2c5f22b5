__device__ float lowered(float value) {
  unsigned short bits;
  float back;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  asm("cvt.f32.f16 %0, %1;" : "=f"(back) : "h"(bits));
  return back;
}

__device__ float block_sum(float value) {
  __shared__ float shared[256];
  shared[threadIdx.x] = value;
  __syncthreads();
  for (int half = 128; half > 0; half /= 2) {
    if (threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
    __syncthreads();
  }
  return shared[0];
}
extern "C" __global__ void total(const float* __restrict__ x, float* out, int n) {
  // Rounds each thread's sum to 16 bits.
  float mine = 0.0f;
  for (int i = threadIdx.x; i < n; i += 256) mine += x[i];
  mine = block_sum(lowered(mine));
  if (threadIdx.x == 0) out[0] = mine;
}
