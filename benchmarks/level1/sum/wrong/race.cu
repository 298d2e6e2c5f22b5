// The tree's steps are not separated by a barrier: a race between warps.
extern "C" __global__ void sum_blocks(const float* __restrict__ x, float* __restrict__ partial, int n) {
  __shared__ float shared[256];
  const int t = threadIdx.x;
  const int at = blockIdx.x * 256 + t;
  shared[t] = at < n ? x[at] : 0.0f;
  __syncthreads();
  for (int half = 128; half > 0; half /= 2) {
    if (t < half) shared[t] += shared[t + half];
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
