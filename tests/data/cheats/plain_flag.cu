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

// The last block adds the partial sums, but nothing orders them before the ticket.
extern "C" __global__ void total(const float* x, float* out, float* partial, unsigned* ticket, int n) {
  __shared__ bool last;
  float mine = 0.0f;
  for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256) mine += x[i];
  mine = block_sum(mine);
  if (threadIdx.x == 0) {
    partial[blockIdx.x] = mine;
    last = atomicAdd(ticket, 1u) == gridDim.x - 1;
  }
  __syncthreads();
  if (!last) return;
  mine = 0.0f;
  for (int b = threadIdx.x; b < gridDim.x; b += 256) mine += partial[b];
  __syncthreads();
  mine = block_sum(mine);
  if (threadIdx.x == 0) out[0] = mine;
}
