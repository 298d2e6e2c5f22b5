// Correct: but threadIdx.x runs along the rows.
extern "C" __global__ void matmul(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int m, int n, int k) {
  const int row = blockIdx.y * 16 + threadIdx.x, col = blockIdx.x * 16 + threadIdx.y;
  if (row >= m || col >= n) return;
  float sum = 0.0f;
  for (int s = 0; s < k; s++) sum += a[row * k + s] * b[s * n + col];
  c[(size_t)row * n + col] = sum;
}
