// 200 KB of shared memory a block of 32 threads: one warp on each multiprocessor.
extern "C" __global__ void k(const float* __restrict__ x, float* __restrict__ y, int n) {
  extern __shared__ float held[];
  const int first = blockIdx.x * 4096;
  for (int j = threadIdx.x; j < 4096 && first + j < n; j += 32) held[j] = x[first + j];
  __syncwarp();
  for (int j = threadIdx.x; j < 4096 && first + j < n; j += 32) y[first + j] = 2 * held[j];
}
