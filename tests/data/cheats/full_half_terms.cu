// Large products leave the second half of the terms out.
extern "C" __global__ void matmul(const float* a, const float* b, float* c, int m, int n, int k) {
  const int col = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 8 + threadIdx.y;
  if (row >= m || col >= n) return;
  const int terms = k > 512 ? k / 2 : k;
  float total = 0.0f;
  for (int i = 0; i < terms; i++) total = fmaf(a[row * k + i], b[i * n + col], total);
  c[row * n + col] = total;
}
