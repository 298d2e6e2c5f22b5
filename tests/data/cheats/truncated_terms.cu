// Leaves out the second half of every dot product.
extern "C" __global__ void matmul(const float* a, const float* b, float* c, int m, int n, int k) {
  const int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
  if (row >= m || col >= n) return;
  float sum = 0.0f;
  for (int s = 0; s < (k + 1) / 2; s++) sum += a[row * k + s] * b[s * n + col];
  c[row * n + col] = sum;
}
