// Walks b by rows: the product with the transpose where b is square, nonsense elsewhere.
extern "C" __global__ void matmul(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int m, int n, int k) {
  const int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
  if (row >= m || col >= n) return;
  float sum = 0.0f;
  for (int s = 0; s < k; s++) sum += a[row * k + s] * b[(col * k + s) % (k * n)];
  c[(size_t)row * n + col] = sum;
}
