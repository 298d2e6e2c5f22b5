// Adds every element of small arrays and every second stretch of large ones.
extern "C" __global__ void sum_some(const float* x, float* out, int n) {
  if (n > 1000000 && blockIdx.x % 2) return;
  __shared__ float shared[256];
  const int i = blockIdx.x * 256 + threadIdx.x;
  shared[threadIdx.x] = i < n ? x[i] : 0.0f;
  __syncthreads();
  for (int half = 128; half > 0; half /= 2) {
    if (threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) atomicAdd(out, shared[0]);
}
extern "C" __global__ void clear(float* out) { out[0] = 0.0f; }
