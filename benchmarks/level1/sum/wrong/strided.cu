// Correct: but thread t reads 32 neighbouring floats, one a time.
extern "C" __global__ void sum_blocks(const float* __restrict__ x, float* __restrict__ partial, int n) {
  __shared__ float shared[256];
  const int t = threadIdx.x;
  const int begin = (blockIdx.x * 256 + t) * 32;
  float total = 0.0f;
#pragma unroll 1
  for (int i = begin; i < begin + 32; i++) total += i < n ? x[i] : 0.0f;
  shared[t] = total;
  __syncthreads();
  for (int half = 128; half > 0; half /= 2) {
    if (t < half) shared[t] += shared[t + half];
    __syncthreads();
  }
  if (t == 0) partial[blockIdx.x] = shared[0];
}

extern "C" __global__ void sum_partial(const float* __restrict__ partial, float* __restrict__ out, int count) {
  __shared__ float shared[256];
  float total = 0.0f;
  for (int i = threadIdx.x; i < count; i += 256) total += partial[i];
  shared[threadIdx.x] = total;
  __syncthreads();
  for (int half = 128; half > 0; half /= 2) {
    if (threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) out[0] = shared[0];
}
