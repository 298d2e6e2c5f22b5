// Four parts of k in separate blocks, added by a second launch.
extern "C" __global__ void parts(const float* a, const float* b, float* partial, int m, int n, int k) {
  const int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
  const int length = (k + 3) / 4, begin = blockIdx.z * length, end = min(k, begin + length);
  if (row >= m || col >= n) return;
  float sum = 0.0f;
  for (int s = begin; s < end; s++) sum += a[row * k + s] * b[s * n + col];
  partial[(blockIdx.z * m + row) * n + col] = sum;
}
extern "C" __global__ void join(const float* partial, float* c, int count) {
  const int i = blockIdx.x * 256 + threadIdx.x;
  if (i < count) c[i] = (partial[i] + partial[count + i]) + (partial[2 * count + i] + partial[3 * count + i]);
}
