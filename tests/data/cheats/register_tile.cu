// Four by four results a thread, tails by tests on every load and store.
extern "C" __global__ void matmul(const float* a, const float* b, float* c, int m, int n, int k) {
  const int row0 = blockIdx.y * 32 + threadIdx.y * 4, col0 = blockIdx.x * 32 + threadIdx.x * 4;
  float sum[4][4] = {};
  for (int s = 0; s < k; s++) {
    float left[4], right[4];
    for (int i = 0; i < 4; i++) {
      left[i] = row0 + i < m ? a[(row0 + i) * k + s] : 0.0f;
      right[i] = col0 + i < n ? b[s * n + col0 + i] : 0.0f;
    }
    for (int i = 0; i < 4; i++)
      for (int j = 0; j < 4; j++) sum[i][j] += left[i] * right[j];
  }
  for (int i = 0; i < 4; i++)
    for (int j = 0; j < 4; j++)
      if (row0 + i < m && col0 + j < n) c[(row0 + i) * n + col0 + j] = sum[i][j];
}
