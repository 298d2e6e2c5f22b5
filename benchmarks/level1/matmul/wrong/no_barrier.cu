// The barrier after the multiplication is missing: a fast warp refills tiles that others still read.
extern "C" __global__ void matmul(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int m, int n, int k) {
  const int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
  __shared__ float tile_a[16][17], tile_b[16][17];
  const int tx = threadIdx.x, ty = threadIdx.y;
  float sum = 0.0f;
  for (int s0 = 0; s0 < k; s0 += 16) {
    tile_a[ty][tx] = row < m && s0 + tx < k ? a[row * k + s0 + tx] : 0.0f;
    tile_b[ty][tx] = s0 + ty < k && col < n ? b[(s0 + ty) * n + col] : 0.0f;
    __syncthreads();
    for (int s = 0; s < 16; s++) sum += tile_a[ty][s] * tile_b[s][tx];
  }
  if (row < m && col < n) c[(size_t)row * n + col] = sum;
}
