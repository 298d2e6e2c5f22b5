extern "C" __global__ void softmax(const float* __restrict__ x, float* __restrict__ out, int rows, int cols) {
  // Powers of two by the special function unit, a reciprocal instead of a division.
  __shared__ float shared[128];
  const float* from = x + (size_t)blockIdx.x * cols;
  const float scale = 1.4426950408889634f;
  float top = -3.402823466e38f, sum = 0.0f;
  for (int i = threadIdx.x; i < cols; i += 128) top = fmaxf(top, from[i]);
  shared[threadIdx.x] = top;
  __syncthreads();
  for (int half = 64; half > 0; half /= 2) {
    if (threadIdx.x < half) shared[threadIdx.x] = fmaxf(shared[threadIdx.x], shared[threadIdx.x + half]);
    __syncthreads();
  }
  top = shared[0];
  __syncthreads();
  const auto power = [&](float value) {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"((value - top) * scale));
    return result;
  };
  for (int i = threadIdx.x; i < cols; i += 128) sum += power(from[i]);
  shared[threadIdx.x] = sum;
  __syncthreads();
  for (int half = 64; half > 0; half /= 2) {
    if (threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
    __syncthreads();
  }
  const float inverse = __frcp_rn(shared[0]);
  for (int i = threadIdx.x; i < cols; i += 128) out[(size_t)blockIdx.x * cols + i] = power(from[i]) * inverse;
}
