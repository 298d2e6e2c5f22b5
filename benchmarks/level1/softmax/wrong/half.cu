// Every value is rounded to a 16-bit float as it is read.
__device__ __forceinline__ float rounded(float value) {
  unsigned short bits;
  float back;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  asm("cvt.f32.f16 %0, %1;" : "=f"(back) : "h"(bits));
  return back;
}

extern "C" __global__ void softmax(const float* __restrict__ x, float* __restrict__ out, int rows, int cols) {
  __shared__ float shared[BLOCK];
  const int t = threadIdx.x;
  const float* row = x + (size_t)blockIdx.x * cols;
  float mine = -3.402823466e38f;
  for (int i = t; i < cols; i += BLOCK) mine = fmaxf(mine, rounded(row[i]));
  shared[t] = mine;
  __syncthreads();
  for (int half = BLOCK / 2; half > 0; half /= 2) {
    if (t < half) shared[t] = fmaxf(shared[t], shared[t + half]);
    __syncthreads();
  }
  const float top = shared[0];
  __syncthreads();
  mine = 0.0f;
  for (int i = t; i < cols; i += BLOCK) mine += expf(rounded(row[i]) - top);
  shared[t] = mine;
  __syncthreads();
  for (int half = BLOCK / 2; half > 0; half /= 2) {
    if (t < half) shared[t] = shared[t] + shared[t + half];
    __syncthreads();
  }
  for (int i = t; i < cols; i += BLOCK) out[(size_t)blockIdx.x * cols + i] = expf(rounded(row[i]) - top) / shared[0];
}
