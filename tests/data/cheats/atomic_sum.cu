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

// One atomic addition a block: the order of additions changes from run to run.
extern "C" __global__ void clear(float* out) { out[0] = 0.0f; }
extern "C" __global__ void total(const float* __restrict__ x, float* out, int n) {
  float mine = 0.0f;
  for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256) mine += x[i];
  mine = block_sum(mine);
  if (threadIdx.x == 0) atomicAdd(out, mine);
}
